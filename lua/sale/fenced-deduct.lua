-- The write of a strategy with a lock: takes the units of one order, all or none, and records the order. The caller has checked,
-- under its locks, that they are free and that the customer has no order; the fences reject a caller that has since lost a lease. What
-- is checked again here, late payments, stock cuts and administrators change without a lock.
--
-- KEYS 1 state         hash: epoch, paused, offer, extraUnits, and the newest fencing token of each lock and counter
--      2 counters      hash that counts the units
--      3 buyers        hash: user id -> "<order id> <reserved at>"
--      4 reservations  sorted set of reservations that Postgres does not have yet
-- ARGV 1 user id
--      2 order id
--      3 name of the lock: tokens of different locks cannot be compared
--      4 epoch in which the sale must have been loaded
--      5 deadline, milliseconds since 1970: after it nothing is done (see store/late-requests.ts)
--      then for each counter under a lock: the field of `counters`, how many units to take from it, and the fencing token of its
--      lease; 0 for a lock without tokens
-- Replies
--   {'reserved', reserved at}
--   {'held', reserved at, order id}   the customer has an order, this or another one; nothing was done
--   {'empty'}        a counter has fewer units, or the sale is paused; nothing was done
--   {'fenced'}       a later lease has read or written already; nothing was done
--   {'not-loaded'}   the sale is not in Redis, or from another epoch; nothing was done
--   {'late'}         the deadline has passed; nothing was done
local userId, orderId = ARGV[1], ARGV[2]
local state = redis.call('HMGET', KEYS[1], 'epoch', 'paused', 'offer')
if state[1] ~= ARGV[4] then return {'not-loaded'} end
--#include clock
--#include admits
local isShort = state[2] == '1'
for i = 6, #ARGV, 3 do
  local free = redis.call('HGET', KEYS[2], ARGV[i])
  if not free then return {'not-loaded'} end
  isShort = isShort or tonumber(free) < tonumber(ARGV[i + 1])
end
if nowMs >= tonumber(ARGV[5]) then return {'late'} end
for i = 6, #ARGV, 3 do
  if not admits(KEYS[1], 'fence:' .. ARGV[3] .. ':' .. ARGV[i], ARGV[i + 2]) then return {'fenced'} end
end
local held = redis.call('HGET', KEYS[3], userId)
if held then
  local other, reservedAt = held:match('^(%S+) (%S+)$')
  return {'held', reservedAt, other}
end
if isShort then return {'empty'} end

local instant = string.format('%.0f', nowMs)
local places, quantity = {}, 0
for i = 6, #ARGV, 3 do
  local units = tonumber(ARGV[i + 1])
  if units > 0 then
    quantity = quantity + units
    local segment = ARGV[i] == 'remaining' and '' or ARGV[i]
    places[#places + 1] = segment .. (units == 1 and '' or 'x' .. ARGV[i + 1])
  end
end
local where = table.concat(places, ',')
local reservedAt = instant .. (state[3] or '') .. (ARGV[6] == 'remaining' and where or ':' .. where)
local record = orderId .. ' ' .. reservedAt
redis.call('ZADD', KEYS[4], instant, userId .. ' ' .. record)
for i = 6, #ARGV, 3 do
  if ARGV[i + 1] ~= '0' then redis.call('HINCRBY', KEYS[2], ARGV[i], -ARGV[i + 1]) end
end
redis.call('HSET', KEYS[3], userId, record)
if quantity > 1 then redis.call('HINCRBY', KEYS[1], 'extraUnits', quantity - 1) end
return {'reserved', reservedAt}
