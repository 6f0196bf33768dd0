-- Returns a digest of many sales: just enough to see which need attention.
--
-- KEYS of each sale: state         hash: remaining, epoch, startsMs, endsMs, paused, maxPerOrder, offer, extraUnits
--                    counters      hash that counts the units: the state itself, or one field for each segment
--                    reservations  sorted set of reservations that Postgres does not have yet
--                    buyers        hash: user id -> "<order id> <reserved at>"
-- ARGV 1 epoch       in which the sales must have been loaded
-- Reply  for each sale, in order, five values: free units (below zero when Redis is wrong), or nil when it is not loaded;
--        pending reservations; the age of the oldest in milliseconds, 0 without one; units of buyers;
--        "<startsMs> <endsMs> <paused> <maxPerOrder> <offer>", each perhaps ''
local reply, n = {}, 0
--#include clock
for i = 1, #KEYS, 4 do
  local state, counters = KEYS[i], KEYS[i + 1]
  local free = false
  local read = redis.call('HMGET', state, 'remaining', 'epoch', 'startsMs', 'endsMs', 'paused', 'maxPerOrder', 'extraUnits', 'offer')
  if state == counters then
    free = read[1] and read[2] == ARGV[1] and tonumber(read[1])
  elseif read[2] == ARGV[1] then
    local values = redis.call('HVALS', counters)
    free = values[1] and 0 or false -- a nil would end the reply
    for _, value in ipairs(values) do free = free + value end
  end
  local pending, ageMs = redis.call('ZCARD', KEYS[i + 2]), 0
  if pending > 0 then ageMs = nowMs - redis.call('ZRANGE', KEYS[i + 2], 0, 0, 'WITHSCORES')[2] end
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = free, pending, ageMs, redis.call('HLEN', KEYS[i + 3]) + (read[7] or 0)
  reply[n + 5] = table.concat({read[3] or '', read[4] or '', read[5] or '', read[6] or '', read[8] or ''}, ' ')
  n = n + 5
end
return reply
