-- Makes a sale in Redis what it is in Postgres, units and buyers, if nothing at all has happened in Redis since it
-- was observed and no reservation is under way.
--
-- KEYS 1 state         hash: remaining, startsMs, endsMs, epoch, generation
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 reservations  sorted set of reservations that Postgres does not have yet
--      4 buyers        hash: user id -> "<order id> <reserved at>"
--      5 a copy of the buyers that Postgres knows, prepared by the caller; taken over or thrown away
-- ARGV 1 units that were observed
--      2 returns that were observed: whatever adds a unit or a buyer counts there, and all else takes units away
--      3 units that are free in Postgres
-- Reply  1 when Redis was changed, 0 when something had happened
local counters = {}
if KEYS[1] == KEYS[2] then
  counters = {'remaining', redis.call('HGET', KEYS[1], 'remaining')}
else
  counters = redis.call('HGETALL', KEYS[2])
end

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
redis.call('HINCRBY', KEYS[1], 'generation', 1)
redis.pcall('PUBLISH', 'stampede:generations', KEYS[1])
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
