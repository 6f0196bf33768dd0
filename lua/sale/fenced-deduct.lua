-- The write of a lock strategy: takes one unit from one counter and records the order, without looking whether a
-- unit is left. The caller looked, under its lock. The fence keeps out a caller whose lease was lost since.
--
-- KEYS 1 state         hash: remaining, startsMs, endsMs, epoch
--      2 counters      hash that counts the units
--      3 buyers        hash: user id -> "<order id> <reserved at>"
--      4 reservations  sorted set of reservations that Postgres does not have yet
-- ARGV 1 counter       the field of `counters`
--      2 user id
--      3 order id
--      4 fencing token of the lease; 0 for a lock that has none
--      5 name of the lock: tokens of different locks cannot be compared
--      6 epoch in which the sale must have been opened
--      7 deadline, milliseconds since 1970: afterwards nothing is done (see store/late-requests.ts)
-- Replies
--   {'reserved', reserved at}
--   {'fenced'}   a later lease has written already; nothing was done
--   {'not-loaded'}   the sale is not in Redis, or from another epoch; nothing was done
--   {'late'}     the deadline is over
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 or redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[6] then
  return {'not-loaded'}
end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
if ms >= tonumber(ARGV[7]) then return {'late'} end
local fence = tonumber(ARGV[4])
if fence > 0 then
  local field = 'fence:' .. ARGV[5] .. ':' .. ARGV[1]
  if fence < tonumber(redis.call('HGET', KEYS[1], field) or '0') then return {'fenced'} end
  redis.call('HSET', KEYS[1], field, fence)
end
local nowMs = string.format('%.0f', ms)
local reservedAt = ARGV[1] == 'remaining' and nowMs or nowMs .. ':' .. ARGV[1]
local record = ARGV[3] .. ' ' .. reservedAt
redis.call('ZADD', KEYS[4], nowMs, ARGV[2] .. ' ' .. record)
redis.call('HINCRBY', KEYS[2], ARGV[1], -1)
redis.call('HSET', KEYS[3], ARGV[2], record)
return {'reserved', reservedAt}
