-- Adds units to a sale, or takes free ones out of it: all of them or none.
--
-- KEYS 1 state     hash: remaining, startsMs, endsMs
--      2 counters  hash that counts the units: the state itself, or one field for each segment
-- ARGV 1 units     above zero adds, below zero takes
-- Reply  the units added or taken; 0 when fewer than asked are free; nil when the sale is not in Redis
local units = tonumber(ARGV[1])
local fields = KEYS[1] == KEYS[2] and {'remaining'} or redis.call('HKEYS', KEYS[2])
local values = #fields > 0 and redis.call('HMGET', KEYS[2], unpack(fields)) or {}
if not values[1] then return false end

local free = 0
for _, value in ipairs(values) do free = free + math.max(0, tonumber(value)) end
if units < 0 and free + units < 0 then return 0 end

local left = math.abs(units)
local share = math.ceil(left / #fields)
while left > 0 do
  for i, field in ipairs(fields) do
    local part = math.min(left, share)
    if units < 0 then part = math.min(part, math.max(0, tonumber(values[i]))) end
    if part > 0 then
      local change = units < 0 and -part or part
      redis.call('HINCRBY', KEYS[2], field, change)
      values[i] = tonumber(values[i]) + change
      left = left - part
    end
  end
end
return units
