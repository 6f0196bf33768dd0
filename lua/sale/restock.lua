-- Adds units to a sale, or takes free ones from it: all of them or none.
--
-- KEYS 1 state     hash: remaining, startsMs, endsMs, epoch, generation
--      2 counters  hash that counts the units: the state itself, or one field for each segment
--      3 restocks  set of the numbers of applied restocks
-- ARGV 1 units     above zero adds, below zero takes
--      2 epoch     in which the sale must have been loaded
--      3 number of the restock, which is applied once however often it is sent; or ''
-- Reply  the units added or taken; 0 when too few are free; nil when the sale is not in Redis, or from another epoch
--#include units
local units = tonumber(ARGV[1])
local counters = counterValues(KEYS[1], KEYS[2])
if not counters[2] or redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then return false end

-- First: when a full Redis rejects this write, the outbox sends the restock again.
if ARGV[3] ~= '' and redis.call('SADD', KEYS[3], ARGV[3]) == 0 then return units end

local free = 0
for i = 2, #counters, 2 do
  counters[i] = tonumber(counters[i])
  free = free + math.max(0, counters[i])
end
if units < 0 and free + units < 0 then return 0 end
if units > 0 then bumpGeneration(KEYS[1]) end

local left = math.abs(units)
local share = math.ceil(left / (#counters / 2))
while left > 0 do
  for i = 1, #counters, 2 do
    local part = math.min(left, share)
    if units < 0 then part = math.min(part, math.max(0, counters[i + 1])) end
    if part > 0 then
      local change = units < 0 and -part or part
      redis.call('HINCRBY', KEYS[2], counters[i], change)
      counters[i + 1] = counters[i + 1] + change
      left = left - part
    end
  end
end
return units
