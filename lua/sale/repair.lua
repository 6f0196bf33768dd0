-- Makes a sale in Redis equal to Postgres, units and buyers (compare and set): only if nothing has happened in Redis since the
-- snapshot, and no reservation is pending.
--
-- KEYS 1 state         hash: remaining, generation, extraUnits and others
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 reservations  sorted set of reservations that Postgres does not have yet
--      4 buyers        hash: user id -> "<order id> <reserved at>"
--      5 a copy of the buyers that Postgres knows, made by the caller; renamed or deleted
-- ARGV 1 units of the snapshot
--      2 generation of the snapshot: it grows with each added unit or buyer, and everything else takes units
--      3 units that are free in Postgres
--      4 units of the buyers that Postgres knows, beyond one for each
-- Reply  1 when Redis was changed, 0 when something had happened
--#include units
local counters = counterValues(KEYS[1], KEYS[2])

local function unchanged()
  if not counters[2] or redis.call('ZCARD', KEYS[3]) > 0 then return false end
  local free = 0
  for i = 2, #counters, 2 do free = free + tonumber(counters[i]) end
  return free == tonumber(ARGV[1]) and redis.call('HGET', KEYS[1], 'generation') == ARGV[2]
end

if not unchanged() then
  redis.call('DEL', KEYS[5])
  return 0
end
bumpGeneration(KEYS[1])
redis.call('HSET', KEYS[1], 'extraUnits', ARGV[4])
redis.call('DEL', KEYS[4])
if redis.call('EXISTS', KEYS[5]) == 1 then
  redis.call('RENAME', KEYS[5], KEYS[4])
  redis.call('PERSIST', KEYS[4])
end
local units, fields = tonumber(ARGV[3]), #counters / 2
local share, rest = math.floor(units / fields), units % fields
for i = 1, fields do
  redis.call('HSET', KEYS[2], counters[2 * i - 1], share + (i <= rest and 1 or 0))
end
return 1
