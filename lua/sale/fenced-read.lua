-- Reads what a strategy with a lock needs for its decision, and records the fencing token: an earlier holder of the lock can
-- no longer write, not even between this read and the write based on it. Units and buyer are of one instant: between two reads Redis may
-- be emptied, and a customer with an order be refused.
--
-- KEYS 1 state     hash: startsMs, endsMs, paused, maxPerOrder, epoch
--      2 counters  hash that counts the units
--      3 buyers    hash: user id -> "<order id> <reserved at>"
-- ARGV 1 counter   the field of `counters`
--      2 fencing token of the lease; 0 for a lock without tokens
--      3 name of the lock: tokens of different locks cannot be compared
--      4 epoch in which the sale must have been loaded
--      5 user id
-- Replies
--   {'loaded', units, the buyer's record or '', startsMs, endsMs, paused, maxPerOrder}
--   {'fenced'}       a later lease has read or written already
--   {'not-loaded'}   the sale is not in Redis, or from another epoch
local state = redis.call('HMGET', KEYS[1], 'startsMs', 'endsMs', 'epoch', 'paused', 'maxPerOrder')
local units = redis.call('HGET', KEYS[2], ARGV[1])
if not units or state[3] ~= ARGV[4] then return {'not-loaded'} end
--#include admits
if not admits(KEYS[1], 'fence:' .. ARGV[3] .. ':' .. ARGV[1], ARGV[2]) then return {'fenced'} end
-- Without a limit, an earlier version has loaded the sale: orders of one unit only.
local buyer = redis.call('HGET', KEYS[3], ARGV[5]) or ''
return {'loaded', units, buyer, state[1], state[2], state[4] or '', state[5] or '1'}
