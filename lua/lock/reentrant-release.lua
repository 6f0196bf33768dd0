-- Takes a claim out, or a process out of the line. When nobody holds the lock then, one waiter is woken: the first
-- whose process listens. A process that is dead does not, and is dropped.
--
-- KEYS 1 lock     hash, see lock/reentrant-acquire.lua
--      2 waiters  sorted set, see lock/reentrant-acquire.lua
-- ARGV 1 token    of the claim; empty: only leaves the line
--      2 channel  of this process; empty: it does not stand in line
--      3 again    1: this process has others who wait, and goes to the end of the line when another was woken
-- Reply  0 nothing was held by this claim; 1 it was; 2 it was, and another process was woken
local lock, waiters = KEYS[1], KEYS[2]
local token, channel, again = ARGV[1], ARGV[2], ARGV[3]

if token ~= '' then
  if redis.call('HDEL', lock, token) == 0 then return 0 end
  if redis.call('HLEN', lock) > 2 then return 1 end
  redis.call('DEL', lock)
elseif redis.call('ZREM', waiters, channel) == 1 or redis.call('EXISTS', lock) == 1 then
  return 0
end

repeat
  local first = redis.call('ZPOPMIN', waiters)[1]
  if first and redis.call('PUBLISH', first, lock) > 0 then
    if again == '1' then
      local time = redis.call('TIME')
      redis.call('ZADD', waiters, string.format('%.0f', time[1] * 1000000 + time[2]), channel)
      redis.call('EXPIRE', waiters, 86400)
    end
    return token == '' and 0 or 2
  end
until not first
return token == '' and 0 or 1
