-- Decides one attempt, atomically: window, one per customer, stock, deduction, record.
--
-- KEYS 1 state         hash: remaining, startsMs, endsMs, epoch
--      2 buyers        hash: user id -> "<order id> <reserved at>"
--      3 reservations  sorted set of reservations that Postgres does not have yet: "<user id> <order id> <reserved at>" -> its
--                      claim (see sale/claim.lua), at first the same instant. Reserved at: milliseconds since 1970; with
--                      segments, ':' and the segment of the unit follow; '0' for an order that was not reserved
-- ARGV 1 user id
--      2 order id, made by the caller; the same attempt sent twice takes one unit
--      3 epoch in which the sale must have been loaded
--      4 deadline, milliseconds since 1970: after it no unit is taken (see store/late-requests.ts)
-- Replies
--   {'reserved', order id, reserved at}   a unit was taken, now or by an earlier request of this attempt
--   {'held', order id, reserved at}       the customer has an earlier order
--   {'sold-out'} {'not-started'} {'ended'}
--   {'late'}                              the deadline has passed
--   {'not-loaded'}                        the sale is not in Redis, or from another epoch
local state = redis.call('HMGET', KEYS[1], 'remaining', 'startsMs', 'endsMs', 'epoch')
if not state[1] or state[4] ~= ARGV[3] then return {'not-loaded'} end

local held = redis.call('HGET', KEYS[2], ARGV[1])
if held then
  local orderId, reservedAt = held:match('^(%S+) (%S+)$')
  return {orderId == ARGV[2] and 'reserved' or 'held', orderId, reservedAt}
end

--#include clock
if state[2] ~= '' and nowMs < tonumber(state[2]) then return {'not-started'} end
if state[3] ~= '' and nowMs >= tonumber(state[3]) then return {'ended'} end
if tonumber(state[1]) <= 0 then return {'sold-out'} end
if nowMs >= tonumber(ARGV[4]) then return {'late'} end

local reservedAt = string.format('%.0f', nowMs)
local record = ARGV[2] .. ' ' .. reservedAt
redis.call('ZADD', KEYS[3], reservedAt, ARGV[1] .. ' ' .. record) -- first: only this key's type is still unverified
redis.call('HSET', KEYS[2], ARGV[1], record)
redis.call('HINCRBY', KEYS[1], 'remaining', -1)
return {'reserved', ARGV[2], reservedAt}
