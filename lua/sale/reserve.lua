-- Decides one attempt, atomically: pause, window, one per customer, limit, stock, deduction, record.
--
-- KEYS 1 state         hash: remaining, startsMs, endsMs, paused, maxPerOrder, offer, extraUnits, epoch
--      2 buyers        hash: user id -> "<order id> <reserved at>"
--      3 reservations  sorted set of reservations that Postgres does not have yet: "<user id> <order id> <reserved at>" -> its
--                      claim (see sale/claim.lua), at first the same instant. Reserved at: milliseconds since 1970, or '0' for an
--                      order that was not reserved; then the offer (see lib/terms.lua), which a reservation by an earlier version
--                      lacks; with segments, ':' and the segment of the unit follow. Of several units: 'x' and their number; if they
--                      are of several segments, each with its own, after commas: "1700000000000@4900:3x2,7"
-- ARGV 1 user id
--      2 order id, made by the caller; the same attempt sent twice takes its units once
--      3 epoch in which the sale must have been loaded
--      4 deadline, milliseconds since 1970: after it no unit is taken (see store/late-requests.ts)
--      5 quantity: how many units, all or none
--      6 '1' if the customer may buy before the sale starts, or ''
-- Replies
--   {'reserved', order id, reserved at}   the units were taken, now or by an earlier request of this attempt
--   {'held', order id, reserved at}       the customer has an earlier order
--   {'sold-out'} {'not-started'} {'ended'} {'paused'}
--   {'not-enough-units', free}            fewer units are free
--   {'over-limit', most}                  an order may have at most that many
--   {'late'}                              the deadline has passed
--   {'not-loaded'}                        the sale is not in Redis, or from another epoch
local state = redis.call('HMGET', KEYS[1], 'remaining', 'startsMs', 'endsMs', 'epoch', 'paused', 'maxPerOrder', 'offer')
if not state[1] or state[4] ~= ARGV[3] then return {'not-loaded'} end

local held = redis.call('HGET', KEYS[2], ARGV[1])
if held then
  local orderId, reservedAt = held:match('^(%S+) (%S+)$')
  return {orderId == ARGV[2] and 'reserved' or 'held', orderId, reservedAt}
end

--#include clock
if state[5] == '1' then return {'paused'} end
if state[2] ~= '' and ARGV[6] ~= '1' and nowMs < tonumber(state[2]) then return {'not-started'} end
if state[3] ~= '' and nowMs >= tonumber(state[3]) then return {'ended'} end
local free, quantity = tonumber(state[1]), tonumber(ARGV[5])
if quantity > 1 then
  if not state[6] then return {'not-loaded'} end -- an earlier version has loaded it
  if quantity > tonumber(state[6]) then return {'over-limit', state[6]} end
end
if free <= 0 then return {'sold-out'} end
if free < quantity then return {'not-enough-units', state[1]} end
if nowMs >= tonumber(ARGV[4]) then return {'late'} end

local instant = string.format('%.0f', nowMs)
local reservedAt = instant .. (state[7] or '') .. (quantity == 1 and '' or 'x' .. ARGV[5])
local record = ARGV[2] .. ' ' .. reservedAt
redis.call('ZADD', KEYS[3], instant, ARGV[1] .. ' ' .. record) -- first: only this key's type is still unverified
redis.call('HSET', KEYS[2], ARGV[1], record)
redis.call('HINCRBY', KEYS[1], 'remaining', -quantity)
if quantity > 1 then redis.call('HINCRBY', KEYS[1], 'extraUnits', quantity - 1) end
return {'reserved', ARGV[2], reservedAt}
