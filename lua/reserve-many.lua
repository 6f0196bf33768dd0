-- What reserve.lua decides, for many attempts on several sales, in their order: a script's start, the sale's state, the
-- clock and the count are paid for once instead of once for each.
--
-- KEYS for each sale: state, buyers, reservations (see reserve.lua)
-- ARGV 1 epoch in which the sales must have been opened
--      then for each sale: number of attempts, then for each of them: user id, order id
-- Reply  for each attempt, in order, three values: 'reserved' or 'held', order id, entry id; or the word of another
--        answer (see reserve.lua), '', ''
local reply, n, arg = {}, 0, 2
local nowMs

local function answer(word, orderId, entryId)
  reply[n + 1], reply[n + 2], reply[n + 3] = word, orderId, entryId
  n = n + 3
end

for key = 1, #KEYS, 3 do
  local stateKey, buyersKey, stream = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  local attempts = tonumber(ARGV[arg])
  local state = redis.call('HMGET', stateKey, 'remaining', 'startsMs', 'endsMs', 'epoch')
  local free = tonumber(state[1] or '0')
  local taken = 0

  local refusal
  if not state[1] or state[4] ~= ARGV[1] then
    refusal = 'closed'
  elseif state[2] ~= '' or state[3] ~= '' then
    if not nowMs then
      local time = redis.call('TIME')
      nowMs = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    if state[2] ~= '' and nowMs < tonumber(state[2]) then
      refusal = 'not-started'
    elseif state[3] ~= '' and nowMs >= tonumber(state[3]) then
      refusal = 'ended'
    end
  end

  for i = 1, attempts do
    local userId, orderId = ARGV[arg + 2 * i - 1], ARGV[arg + 2 * i]
    local held = refusal ~= 'closed' and redis.call('HGET', buyersKey, userId)
    if held then
      local holder, entryId = held:match('^(%S+) (%S+)$')
      answer(holder == orderId and 'reserved' or 'held', holder, entryId)
    elseif refusal then
      answer(refusal, '', '')
    elseif taken >= free then
      answer('sold-out', '', '')
    else
      taken = taken + 1
      local entryId = redis.call('XADD', stream, '*', 'orderId', orderId, 'userId', userId, 'counter', 'remaining')
      redis.call('HSET', buyersKey, userId, orderId .. ' ' .. entryId)
      answer('reserved', orderId, entryId)
    end
  end
  if taken > 0 then redis.call('HINCRBY', stateKey, 'remaining', -taken) end
  arg = arg + 1 + 2 * attempts
end
return reply
