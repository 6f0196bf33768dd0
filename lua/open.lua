-- Puts a sale into Redis, or what is missing of it: of several processes that do so at the same time the first wins.
--
-- KEYS 1 state         hash: remaining, startsMs, endsMs
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 buyers        hash: user id -> "<order id> <entry id>"
--      4 a copy of the buyers that Postgres knows, prepared by the caller; taken over or thrown away
-- ARGV 1 units that are free in Postgres
--      2 number of segments; 0 for one counter
--      3 first instant of the sale, milliseconds since 1970, or ''
--      4 first instant after the sale, or ''
-- Reply  1 when the sale was not there, 0 when it was
local units, segments = tonumber(ARGV[1]), tonumber(ARGV[2])
local present = redis.call('HEXISTS', KEYS[2], segments > 0 and '0' or 'remaining') == 1
redis.call('HSET', KEYS[1], 'startsMs', ARGV[3], 'endsMs', ARGV[4])

if present then
  -- More segments than before begin empty, and borrow.
  for i = 1, segments - 1 do redis.call('HSETNX', KEYS[2], i, 0) end
  redis.call('DEL', KEYS[4])
  return 0
end

-- A few buyers are those that were settled since Redis lost its memory; many are those of the other way to count.
if redis.call('HLEN', KEYS[3]) > 10000 then
  redis.call('DEL', KEYS[4])
elseif redis.call('EXISTS', KEYS[4]) == 1 then
  local few = redis.call('HGETALL', KEYS[3])
  for i = 1, #few, 2 do redis.call('HSETNX', KEYS[4], few[i], few[i + 1]) end
  redis.call('RENAME', KEYS[4], KEYS[3])
  redis.call('PERSIST', KEYS[3])
end
if segments == 0 then
  redis.call('HSET', KEYS[2], 'remaining', units)
else
  local share, rest = math.floor(units / segments), units % segments
  for i = 0, segments - 1 do
    redis.call('HSET', KEYS[2], i, share + (i < rest and 1 or 0))
  end
end
return 1
