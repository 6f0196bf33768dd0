-- Applies a change of one order that Postgres has committed (see the table mirror_outbox), or is about to commit. Idempotent: the
-- customer's entry shows whether it was applied.
--
-- KEYS 1 state         hash: remaining, startsMs, endsMs, epoch, generation
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 buyers        hash: user id -> "<order id> <reserved at>"
--      4 reservations  sorted set of reservations that Postgres does not have yet
-- ARGV 1 'release': the order is closed; its unit and its customer are free. 'take': the order has a unit again. 'record': it
--        has a unit again, which was already taken from the counter. 'revive', before the commit: takes a unit for the order and its
--        customer, or nothing
--      2 user id
--      3 order id
--      4 counter       the field of `counters` that gains or loses the unit, if it can
--      5 epoch         in which the sale must have been loaded
-- Reply  1 when Redis was changed, 0 when the change was applied before or the customer has another order; -1 when the sale is
--        not in Redis, or from another epoch. To 'revive' 0 also when no unit is free, and 2 when the customer has this order
--#include units
local state, counters, buyers, reservations = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local change, userId, orderId, counter = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('HGET', state, 'epoch') ~= ARGV[5] or redis.call('EXISTS', counters) == 0 then return -1 end
if counters == state and redis.call('HEXISTS', state, 'remaining') == 0 then return -1 end
local buyer = redis.call('HGET', buyers, userId)

if change == 'release' then
  if not buyer then return 0 end
  if buyer:match('^%S+') ~= orderId then return 0 end
  redis.call('HDEL', buyers, userId) -- first: a full Redis allows it, and then the other writes of the script
  redis.call('ZREM', reservations, userId .. ' ' .. buyer) -- committed, though perhaps not acknowledged yet
  bumpGeneration(state)
  if redis.call('HEXISTS', counters, counter) == 0 then counter = redis.call('HKEYS', counters)[1] end
  redis.call('HINCRBY', counters, counter, 1)
  return 1
end

if buyer then return change == 'revive' and buyer:match('^%S+') == orderId and 2 or 0 end
local function take(field)
  local free = tonumber(redis.call('HGET', counters, field) or '0')
  if free > 0 then redis.call('HINCRBY', counters, field, -1) end
  return free > 0
end
local function takeAny()
  if take(counter) then return true end
  if counters == state then return false end
  for _, field in ipairs(redis.call('HKEYS', counters)) do
    if take(field) then return true end
  end
  return false
end
if change == 'revive' and not takeAny() then return 0 end
redis.call('HSET', buyers, userId, orderId .. ' 0')
redis.call('HINCRBY', state, 'generation', 1) -- a buyer was added, but no unit
if change == 'take' then takeAny() end -- when none is free, one is reserved for an attempt that Postgres will reject
return 1
