-- Restores committed reservations of one sale, some of which sale/acknowledge.lua did not find.
--
--   the sale is loaded ──after the reservation──▶ without its buyer the load did not see the order, or saw it closed. The buyer and the units are
--                        │                        taken: the release of a closed order returns them. With too few free units it would return
--                        │                        more than was taken: replied
--                        └──before──▶ without its buyer the order was closed since, or the reservation was made in another copy: replied
--   the sale is not loaded ──▶ the reservation is back: the next load counts it, and the reaper removes it
--
-- KEYS 1 state         hash: epoch, loadedMs, generation, extraUnits and others
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 buyers        hash: user id -> "<order id> <reserved at>"
--      4 reservations  sorted set of reservations that Postgres does not have yet (see sale/reserve.lua)
-- ARGV 1 epoch in which the sale must have been loaded
--      then for each reservation: reserved at, user id, order id
-- Reply  the numbers of the reservations, from 1, of which Postgres must say whether the order is closed
--#include units
--#include take
local state, counters, buyers, reservations = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local loadedMs = redis.call('HGET', state, 'epoch') == ARGV[1] and tonumber(redis.call('HGET', state, 'loadedMs'))
local restored, unclear = 0, {}
for i = 2, #ARGV, 3 do
  local reservedAt, userId, orderId = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local reservedMs = tonumber(reservedAt:match('^%d+'))
  if not loadedMs then
    restored = restored + redis.call('ZADD', reservations, 'NX', reservedMs, userId .. ' ' .. orderId .. ' ' .. reservedAt)
  elseif redis.call('HEXISTS', buyers, userId) == 0 then -- a reservation that was found has its buyer
    local places, units = placesOf(reservedAt)
    if reservedMs > loadedMs or (freeUnits(state, counters) or 0) < units then
      unclear[#unclear + 1] = (i + 1) / 3
    else
      redis.call('HSET', buyers, userId, orderId .. (units == 1 and ' 0' or ' 0x' .. units))
      restored = restored + 1
      addExtra(state, units - 1)
      takeUnits(state, counters, places[1], units)
    end
  end
end
if restored > 0 and loadedMs then redis.call('HINCRBY', state, 'generation', restored) end
return unclear
