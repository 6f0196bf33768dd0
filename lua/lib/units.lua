-- Defines helpers for scripts that count units. A sale keeps its count in the field `remaining` of its state or, with
-- segments, in one field per segment of another hash.
--
-- `counterValues(state, counters)` returns field, value, …; empty, or with a false value, when the sale has no counters.
-- `freeUnits(state, counters)` returns the sum of the values; false when the sale has no counters.
-- `placesOf(reservedAt)` returns the counters that the units of a reservation were taken from, {field, units, …}, and their sum.
-- `unitsOf(reservedAt)` returns the sum only. See sale/reserve.lua.
-- `addExtra(state, units)` counts units of buyers beyond one for each: with the number of buyers, all units that are held.
-- `bumpGeneration(state)` records that a unit or a buyer was added, and notifies the processes that cache "sold out".
local function counterValues(state, counters)
  if state == counters then return {'remaining', redis.call('HGET', state, 'remaining')} end
  return redis.call('HGETALL', counters)
end

local function freeUnits(state, counters)
  local sum, values = 0, counterValues(state, counters)
  if not values[2] then return false end
  for i = 2, #values, 2 do sum = sum + values[i] end
  return sum
end

local function placesOf(reservedAt)
  local segments = reservedAt:match(':(.+)')
  if not segments then
    local units = tonumber(reservedAt:match('x(%d+)') or 1)
    return {'remaining', units}, units
  end
  local places, sum = {}, 0
  for segment, rest in segments:gmatch('(%d+)([^,]*)') do
    local units = tonumber(rest:match('x(%d+)') or 1)
    places[#places + 1], places[#places + 2] = segment, units
    sum = sum + units
  end
  return places, sum
end

local function unitsOf(reservedAt)
  local _, units = placesOf(reservedAt)
  return units
end

local function addExtra(state, units)
  if units ~= 0 then redis.call('HINCRBY', state, 'extraUnits', units) end
end

local function bumpGeneration(state)
  redis.call('HINCRBY', state, 'generation', 1)
  redis.pcall('PUBLISH', 'stampede:generations', state)
end
