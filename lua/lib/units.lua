-- Defines helpers for scripts that count units. A sale keeps its count in the field `remaining` of its state or, with
-- segments, in one field per segment of another hash.
--
-- `counterValues(state, counters)` returns field, value, …; empty, or with a nil value, when the sale is not loaded.
-- `bumpGeneration(state)` records that a unit or a buyer was added, and notifies the processes that cache "sold out".
local function counterValues(state, counters)
  if state == counters then return {'remaining', redis.call('HGET', state, 'remaining')} end
  return redis.call('HGETALL', counters)
end

local function bumpGeneration(state)
  redis.call('HINCRBY', state, 'generation', 1)
  redis.pcall('PUBLISH', 'stampede:generations', state)
end
