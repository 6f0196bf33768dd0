-- Returns the state of a sale in Redis at one instant.
--
-- KEYS 1 state         hash: remaining, epoch, generation, extraUnits and others
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 reservations  sorted set of reservations that Postgres does not have yet
--      4 buyers        hash: user id -> "<order id> <reserved at>"
-- ARGV 1 epoch         in which the sale must have been loaded
-- Reply  {free units, units of pending reservations, generation, units of buyers}; nil: the sale is not loaded, or from another epoch
--#include units
local values = KEYS[1] == KEYS[2] and redis.call('HMGET', KEYS[1], 'remaining') or redis.call('HVALS', KEYS[2])
local state = redis.call('HMGET', KEYS[1], 'epoch', 'generation', 'extraUnits')
if not values[1] or state[1] ~= ARGV[1] then return false end
local free = 0
for _, value in ipairs(values) do free = free + tonumber(value) end
local pending = redis.call('ZCARD', KEYS[3])
if (state[3] or '0') ~= '0' then
  pending = 0
  for _, member in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do pending = pending + unitsOf(member:match('(%S+)$')) end
end
return {free, pending, state[2], redis.call('HLEN', KEYS[4]) + (state[3] or 0)}
