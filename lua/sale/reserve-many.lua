-- Decides like sale/reserve.lua, for many attempts on several sales, in order. Starting a script, reading the clock and
-- the state, and reading and writing the buyers then cost once per sale instead of once per attempt. Arguments and reply are
-- few long strings: hundreds of short ones cost the client more than the rest of the call.
--
-- KEYS for each sale: state, buyers, reservations (see sale/reserve.lua)
-- ARGV 1 epoch in which the sales must have been loaded
--      2 deadline of all attempts
--      then for each sale: "<user id> <order id>" of each attempt, joined by spaces; of several units, 'x' and their number
--      follow the order id; last comes 'e' if the customer may buy before the sale starts
-- Reply  a line for each attempt, in order: the reply of sale/reserve.lua, joined by spaces; '=' stands for the attempt's own
--        order id in a new reservation
local lines, n = {}, 0
--#include clock
local instant = string.format('%.0f', nowMs)
local isLate = nowMs >= tonumber(ARGV[2])
local ID_LENGTH = 36 -- of an order
-- Reused for each sale: new tables would cost more than their contents.
local users, orders, records, entries = {}, {}, {}, {}

for key = 1, #KEYS, 3 do
  local stateKey, buyersKey, reservationsKey = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  local state = redis.call('HMGET', stateKey, 'remaining', 'startsMs', 'endsMs', 'epoch', 'paused', 'maxPerOrder', 'offer')
  local free = tonumber(state[1] or '0')
  local reservedAt = instant .. (state[7] or '')
  local reserved = 'reserved = ' .. reservedAt

  local rejection
  if not state[1] or state[4] ~= ARGV[1] then
    rejection = 'not-loaded'
  elseif state[5] == '1' then
    rejection = 'paused'
  elseif state[2] ~= '' and nowMs < tonumber(state[2]) then
    rejection = 'not-started'
  elseif state[3] ~= '' and nowMs >= tonumber(state[3]) then
    rejection = 'ended'
  end

  local attempts = 0
  for userId, orderId in ARGV[(key + 8) / 3]:gmatch('(%S+) (%S+)') do
    attempts = attempts + 1
    users[attempts], orders[attempts] = userId, orderId
  end

  local before = rejection ~= 'not-loaded' and redis.call('HMGET', buyersKey, unpack(users, 1, attempts)) or {}

  local taken, units = 0, 0
  local now = attempts > 1 and {} -- customers that got a unit in this call
  for i = 1, attempts do
    local userId, orderId, quantity, isEarly = users[i], orders[i], 1, false
    if #orderId > ID_LENGTH then
      quantity, isEarly = tonumber(orderId:match('x(%d+)', ID_LENGTH) or 1), orderId:sub(-1) == 'e'
      orderId = orderId:sub(1, ID_LENGTH)
    end
    local left = free - units
    local held = before[i] or now and now[userId]
    n = n + 1
    if held then
      lines[n] = (held:match('^%S+') == orderId and 'reserved ' or 'held ') .. held
    elseif rejection and not (isEarly and rejection == 'not-started') then
      lines[n] = rejection
    elseif quantity > 1 and not state[6] then
      lines[n] = 'not-loaded'
    elseif quantity > 1 and quantity > tonumber(state[6]) then
      lines[n] = 'over-limit ' .. state[6]
    elseif left <= 0 then
      lines[n] = 'sold-out'
    elseif left < quantity then
      lines[n] = 'not-enough-units ' .. string.format('%.0f', left)
    elseif isLate then
      lines[n] = 'late'
    else
      local suffix = quantity == 1 and '' or 'x' .. quantity
      local record = orderId .. ' ' .. reservedAt .. suffix
      taken, units = taken + 1, units + quantity
      records[2 * taken - 1], records[2 * taken] = userId, record
      entries[2 * taken - 1], entries[2 * taken] = instant, userId .. ' ' .. record
      if now then now[userId] = record end
      lines[n] = reserved .. suffix
    end
  end
  if taken > 0 then
    -- First, because only this key's type has not been verified yet.
    redis.call('ZADD', reservationsKey, unpack(entries, 1, 2 * taken))
    redis.call('HSET', buyersKey, unpack(records, 1, 2 * taken))
    redis.call('HINCRBY', stateKey, 'remaining', -units)
    if units > taken then redis.call('HINCRBY', stateKey, 'extraUnits', units - taken) end
  end
end
return table.concat(lines, '\n')
