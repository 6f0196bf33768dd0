-- Releases a reservation, exactly once, for the process with the claim to it (see sale/claim.lua).
--
-- KEYS 1 state         hash: generation, extraUnits and others
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 buyers        hash: user id -> "<order id> <reserved at>"
--      4 reservations  sorted set of reservations that Postgres does not have yet
-- ARGV 1 reserved at
--      2 user id
--      3 order id
--      4 how many of its units to discard because Postgres does not have them; the others return to their counters
--      5 the order that the customer has instead, of one unit or with 'x' and its quantity; or ''
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

local places, units = placesOf(ARGV[1])
local discarded, returned = tonumber(ARGV[4]), 0
for i = 1, #places, 2 do
  local gone = math.min(discarded, places[i + 1])
  local back = places[i + 1] - gone
  discarded = discarded - gone
  if back > 0 and redis.call('HEXISTS', KEYS[2], places[i]) == 1 then
    redis.call('HINCRBY', KEYS[2], places[i], back)
    returned = returned + back
  end
end
if returned > 0 then bumpGeneration(KEYS[1]) end
if redis.call('HGET', KEYS[3], ARGV[2]) == record then
  local other, more = ARGV[5]:match('^([^x]+)(x?%d*)$')
  if other then
    redis.call('HSET', KEYS[3], ARGV[2], other .. ' 0' .. more)
    addExtra(KEYS[1], unitsOf(more) - units)
  else
    redis.call('HDEL', KEYS[3], ARGV[2])
    addExtra(KEYS[1], 1 - units)
  end
end
return 1
