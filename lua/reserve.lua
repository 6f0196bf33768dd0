-- The whole decision of one attempt, at once: window, one per customer, stock, deduction, record.
--
-- KEYS 1 state         hash: remaining, startsMs, endsMs, epoch
--      2 buyers        hash: user id -> "<order id> <entry id>"
--      3 reservations  stream of reservations that Postgres does not have yet
-- ARGV 1 user id
--      2 order id, made by the caller; sending the same attempt twice takes one unit
--      3 epoch in which the sale must have been opened
-- Replies
--   {'reserved', order id, entry id}   a unit was taken; also when this very attempt took it before
--   {'held', order id, entry id}       the customer has an earlier order
--   {'sold-out'} {'not-started'} {'ended'}
--   {'closed'}                         the sale is not in Redis, or from another epoch: open it and ask again
local state = redis.call('HMGET', KEYS[1], 'remaining', 'startsMs', 'endsMs', 'epoch')
if not state[1] or state[4] ~= ARGV[3] then return {'closed'} end

local held = redis.call('HGET', KEYS[2], ARGV[1])
if held then
  local orderId, entryId = held:match('^(%S+) (%S+)$')
  return {orderId == ARGV[2] and 'reserved' or 'held', orderId, entryId}
end

if state[2] ~= '' or state[3] ~= '' then
  local time = redis.call('TIME')
  local nowMs = time[1] * 1000 + math.floor(time[2] / 1000)
  if state[2] ~= '' and nowMs < tonumber(state[2]) then return {'not-started'} end
  if state[3] ~= '' and nowMs >= tonumber(state[3]) then return {'ended'} end
end
if tonumber(state[1]) <= 0 then return {'sold-out'} end

redis.call('HINCRBY', KEYS[1], 'remaining', -1)
local entryId = redis.call('XADD', KEYS[3], '*', 'orderId', ARGV[2], 'userId', ARGV[1], 'counter', 'remaining')
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. entryId)
return {'reserved', ARGV[2], entryId}
