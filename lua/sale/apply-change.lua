-- Applies a change of one order that Postgres has committed (see the table mirror_outbox), or is about to commit. Idempotent: the
-- customer's entry shows whether it was applied.
--
-- KEYS 1 state         hash: remaining, epoch, generation, extraUnits and others
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 buyers        hash: user id -> "<order id> <reserved at>"
--      4 reservations  sorted set of reservations that Postgres does not have yet
-- ARGV 1 'release': the order is closed; its units and its customer are free. 'take': the order has its units again. 'record': it
--        has them again, and they were already taken from the counter. 'revive', before the commit: takes the units for the order and
--        its customer, or nothing. 'transfer': the order passes to another customer, and keeps its units
--      2 user id
--      3 order id
--      4 counter       the field of `counters` that gains or loses the units, if it can
--      5 epoch         in which the sale must have been loaded
--      6 quantity      how many units the order has
--      7 to user id    of 'transfer': the other customer
-- Reply  1 when Redis was changed, 0 when the change was applied before or the customer has another order; -1 when the sale is
--        not in Redis, or from another epoch, or the other customer of a 'transfer' has another order or reservation here, which Postgres
--        has closed or will reject: its release comes first. To 'revive' 0 also when too few units are free, and 2 when the customer has this order
--#include units
--#include take
local state, counters, buyers, reservations = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local change, userId, orderId, counter = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local quantity = tonumber(ARGV[6])
if redis.call('HGET', state, 'epoch') ~= ARGV[5] or redis.call('EXISTS', counters) == 0 then return -1 end
if counters == state and redis.call('HEXISTS', state, 'remaining') == 0 then return -1 end
local buyer = redis.call('HGET', buyers, userId)

if change == 'release' then
  if not buyer then return 0 end
  if buyer:match('^%S+') ~= orderId then return 0 end
  redis.call('HDEL', buyers, userId) -- first: a full Redis allows it, and then the other writes of the script
  redis.call('ZREM', reservations, userId .. ' ' .. buyer) -- committed, though perhaps not acknowledged yet
  bumpGeneration(state)
  addExtra(state, 1 - unitsOf(buyer:match('(%S+)$')))
  if redis.call('HEXISTS', counters, counter) == 0 then counter = redis.call('HKEYS', counters)[1] end
  redis.call('HINCRBY', counters, counter, quantity)
  return 1
end

if change == 'transfer' then
  if not buyer or buyer:match('^%S+') ~= orderId then return 0 end
  local other = redis.call('HGET', buyers, ARGV[7])
  if other and other:match('^%S+') ~= orderId then return -1 end
  redis.call('HDEL', buyers, userId) -- first, as above
  redis.call('ZREM', reservations, userId .. ' ' .. buyer)
  redis.call('HINCRBY', state, 'generation', 1) -- a buyer was added, but no unit
  if other then
    addExtra(state, 1 - quantity)
  else
    redis.call('HSET', buyers, ARGV[7], orderId .. (quantity == 1 and ' 0' or ' 0x' .. quantity))
  end
  return 1
end

if buyer then return change == 'revive' and buyer:match('^%S+') == orderId and 2 or 0 end
local function free()
  local sum, values = 0, counterValues(state, counters)
  for i = 2, #values, 2 do sum = sum + math.max(0, tonumber(values[i])) end
  return sum
end
if change == 'revive' then
  if free() < quantity then return 0 end
  takeUnits(state, counters, counter, quantity)
end
redis.call('HSET', buyers, userId, orderId .. (quantity == 1 and ' 0' or ' 0x' .. quantity))
addExtra(state, quantity - 1)
redis.call('HINCRBY', state, 'generation', 1) -- a buyer was added, but no unit
if change == 'take' then takeUnits(state, counters, counter, quantity) end
return 1
