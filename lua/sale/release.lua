-- Releases a reservation, exactly once, for the process with the claim to it (see sale/claim.lua).
--
-- KEYS 1 state         hash: generation and others
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 buyers        hash: user id -> "<order id> <reserved at>"
--      4 reservations  sorted set of reservations that Postgres does not have yet
-- ARGV 1 reserved at
--      2 user id
--      3 order id
--      4 1 to discard the unit because Postgres does not have it, 0 to return it to its counter
--      5 the order that the customer has instead, or ''
--      6 the claim, milliseconds since 1970
-- Reply  1 when this call released it, 0 when another claim holds, -1 when it is not there: it was acknowledged or released before,
--        or a load dropped it (see load.lua)
--#include units
local record = ARGV[3] .. ' ' .. ARGV[1]
local member = ARGV[2] .. ' ' .. record
local claim = redis.call('ZSCORE', KEYS[4], member)
if not claim then return -1 end
if tonumber(claim) ~= tonumber(ARGV[6]) then return 0 end
redis.call('ZREM', KEYS[4], member)

local counter = ARGV[1]:match(':(.+)') or 'remaining'
if ARGV[4] == '0' and redis.call('HEXISTS', KEYS[2], counter) == 1 then
  redis.call('HINCRBY', KEYS[2], counter, 1)
  bumpGeneration(KEYS[1])
end
if redis.call('HGET', KEYS[3], ARGV[2]) == record then
  if ARGV[5] == '' then
    redis.call('HDEL', KEYS[3], ARGV[2])
  else
    redis.call('HSET', KEYS[3], ARGV[2], ARGV[5] .. ' 0')
  end
end
return 1
