-- Returns a digest of many sales, each of one instant: to see which need attention, and which stay sold out.
--
-- KEYS of each sale: state         hash: remaining, epoch, startsMs, endsMs, paused, maxPerOrder, offer, extraUnits, generation
--                    unless the caller needs only that:
--                    counters      hash that counts the units: the state itself, or one field for each segment
--                    reservations  sorted set of reservations that Postgres does not have yet
--                    buyers        hash: user id -> "<order id> <reserved at>"
-- ARGV 1 epoch       in which the sales must have been loaded
--      2 keys        of each sale: 4 or 1
-- Reply  for each sale, in order: {free units (below zero when Redis is wrong), or nil when it is not loaded; its generation;
--        "<startsMs> <endsMs> <paused> <maxPerOrder> <offer>", each perhaps ''; the clock, milliseconds since 1970; with four keys also
--        pending reservations; the age of the oldest in milliseconds, 0 without one; units of buyers}
local reply, width = {}, tonumber(ARGV[2])
--#include clock
--#include units
for i = 1, #KEYS, width do
  local state, counters, reservations, buyers = unpack(KEYS, i, i + width - 1)
  local read = redis.call('HMGET', state, 'epoch', 'generation', 'extraUnits', 'remaining', 'startsMs', 'endsMs', 'paused', 'maxPerOrder', 'offer')
  for k = 5, 9 do read[k] = read[k] or '' end
  local free = read[1] == ARGV[1] and ((counters or state) == state and tonumber(read[4]) or freeUnits(state, counters or state))
  local digest = {free, read[2], table.concat(read, ' ', 5), nowMs}
  if reservations then
    local pending, ageMs = redis.call('ZCARD', reservations), 0
    if pending > 0 then ageMs = nowMs - redis.call('ZRANGE', reservations, 0, 0, 'WITHSCORES')[2] end
    digest[5], digest[6], digest[7] = pending, ageMs, redis.call('HLEN', buyers) + (read[3] or 0)
  end
  reply[#reply + 1] = digest
end
return reply
