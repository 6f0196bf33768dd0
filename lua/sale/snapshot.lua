-- Returns the state of a sale in Redis at one instant.
--
-- KEYS 1 state         hash: remaining, epoch, generation and others
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 reservations  sorted set of reservations that Postgres does not have yet
--      4 buyers        hash: user id -> "<order id> <reserved at>"
-- ARGV 1 epoch         in which the sale must have been loaded
-- Reply  {free units, pending reservations, generation, buyers}; nil: the sale is not loaded, or from another epoch
local values = KEYS[1] == KEYS[2] and redis.call('HMGET', KEYS[1], 'remaining') or redis.call('HVALS', KEYS[2])
if not values[1] or redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return false end
local free = 0
for _, value in ipairs(values) do free = free + tonumber(value) end
return {free, redis.call('ZCARD', KEYS[3]), redis.call('HGET', KEYS[1], 'generation'), redis.call('HLEN', KEYS[4])}
