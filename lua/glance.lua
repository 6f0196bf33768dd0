-- What there is to be looked after, of many sales at once.
--
-- KEYS of each sale: state         hash: remaining, epoch and others
--                    counters      hash that counts the units: the state itself, or one field for each segment
--                    reservations  stream of reservations that Postgres does not have yet
--                    buyers        hash: user id -> "<order id> <entry id>"
-- ARGV 1 epoch       in which the sales must have been opened
-- Reply  for each sale, in order, three values: units free (below zero when Redis is wrong), or nil: it is not here, or
--        from another epoch; reservations not settled; buyers
local reply, n = {}, 0
for i = 1, #KEYS, 4 do
  local state, counters = KEYS[i], KEYS[i + 1]
  local values = state == counters and redis.call('HMGET', state, 'remaining') or redis.call('HVALS', counters)
  local free = false
  if values[1] and redis.call('HGET', state, 'epoch') == ARGV[1] then
    free = 0
    for _, value in ipairs(values) do free = free + tonumber(value) end
  end
  reply[n + 1], reply[n + 2], reply[n + 3] = free, redis.call('XLEN', KEYS[i + 2]), redis.call('HLEN', KEYS[i + 3])
  n = n + 3
end
return reply
