-- Sets the units of a sale to what Postgres has, if nothing at all has happened in Redis since it was observed and
-- no reservation is under way.
--
-- KEYS 1 state         hash: remaining, startsMs, endsMs
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 reservations  stream of reservations that Postgres does not have yet
-- ARGV 1 units that were observed
--      2 newest reservation that was observed
--      3 units that are free in Postgres
-- Reply  1 when the units were set, 0 when something had changed
local single = KEYS[1] == KEYS[2]
local fields = single and {'remaining'} or redis.call('HKEYS', KEYS[2])
if #fields == 0 then return 0 end
local free = 0
for _, value in ipairs(redis.call('HMGET', KEYS[2], unpack(fields))) do free = free + tonumber(value or '0') end
if free ~= tonumber(ARGV[1]) or redis.call('XLEN', KEYS[3]) > 0 then return 0 end

local newest = '0-0'
if redis.call('EXISTS', KEYS[3]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[3])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then newest = info[i + 1] end
  end
end
if newest ~= ARGV[2] then return 0 end

local units = tonumber(ARGV[3])
local share, rest = math.floor(units / #fields), units % #fields
for i, field in ipairs(fields) do
  redis.call('HSET', KEYS[2], field, share + (i <= rest and 1 or 0))
end
return 1
