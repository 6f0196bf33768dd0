-- Reads what a strategy with a lock needs for its decision, and records the fencing token: an earlier holder of the lock can
-- no longer write, not even between this read and the write based on it.
--
-- KEYS 1 state     hash: startsMs, endsMs, paused, maxPerOrder, epoch
--      2 counters  hash that counts the units
-- ARGV 1 counter   the field of `counters`
--      2 fencing token of the lease; 0 for a lock without tokens
--      3 name of the lock: tokens of different locks cannot be compared
--      4 epoch in which the sale must have been loaded
-- Replies
--   {'loaded', units, startsMs, endsMs, paused, maxPerOrder}
--   {'fenced'}       a later lease has read or written already
--   {'not-loaded'}   the sale is not in Redis, or from another epoch
local state = redis.call('HMGET', KEYS[1], 'startsMs', 'endsMs', 'epoch', 'paused', 'maxPerOrder')
local units = redis.call('HGET', KEYS[2], ARGV[1])
if not units or state[3] ~= ARGV[4] then return {'not-loaded'} end
--#include admits
if not admits(KEYS[1], 'fence:' .. ARGV[3] .. ':' .. ARGV[1], ARGV[2]) then return {'fenced'} end
-- Without a limit, an earlier version has loaded the sale: orders of one unit only.
return {'loaded', units, state[1], state[2], state[4] or '', state[5] or '1'}
