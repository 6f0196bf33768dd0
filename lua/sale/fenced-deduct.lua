-- The write of a strategy with a lock: takes one unit from one counter and records the order. The caller has checked, under its
-- lock, that a unit is left and that the customer has none; the fence rejects a caller that has since lost its lease. What is
-- checked again here, late payments and stock cuts change without a lock.
--
-- KEYS 1 state         hash: epoch, and the newest fencing token of each lock and counter
--      2 counters      hash that counts the units
--      3 buyers        hash: user id -> "<order id> <reserved at>"
--      4 reservations  sorted set of reservations that Postgres does not have yet
-- ARGV 1 counter       the field of `counters`
--      2 user id
--      3 order id
--      4 fencing token of the lease; 0 for a lock without tokens
--      5 name of the lock: tokens of different locks cannot be compared
--      6 epoch in which the sale must have been loaded
--      7 deadline, milliseconds since 1970: after it nothing is done (see store/late-requests.ts)
-- Replies
--   {'reserved', reserved at}
--   {'held', reserved at, order id}   the customer has an order, this or another one; nothing was done
--   {'empty'}        no unit is left; nothing was done
--   {'fenced'}       a later lease has read or written already; nothing was done
--   {'not-loaded'}   the sale is not in Redis, or from another epoch; nothing was done
--   {'late'}         the deadline has passed; nothing was done
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 or redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[6] then
  return {'not-loaded'}
end
--#include clock
if nowMs >= tonumber(ARGV[7]) then return {'late'} end
local fence = tonumber(ARGV[4])
if fence > 0 then
  local field = 'fence:' .. ARGV[5] .. ':' .. ARGV[1]
  if fence < tonumber(redis.call('HGET', KEYS[1], field) or '0') then return {'fenced'} end
  redis.call('HSET', KEYS[1], field, fence)
end
local held = redis.call('HGET', KEYS[3], ARGV[2])
if held then
  local orderId, reservedAt = held:match('^(%S+) (%S+)$')
  return {'held', reservedAt, orderId}
end
if tonumber(redis.call('HGET', KEYS[2], ARGV[1])) <= 0 then return {'empty'} end
local instant = string.format('%.0f', nowMs)
local reservedAt = ARGV[1] == 'remaining' and instant or instant .. ':' .. ARGV[1]
local record = ARGV[3] .. ' ' .. reservedAt
redis.call('ZADD', KEYS[4], instant, ARGV[2] .. ' ' .. record)
redis.call('HINCRBY', KEYS[2], ARGV[1], -1)
redis.call('HSET', KEYS[3], ARGV[2], record)
return {'reserved', reservedAt}
