-- Releases an acquisition, or removes a process from the queue. If the lock is free then, notifies one waiter: the first whose
-- process is subscribed. A dead process is not subscribed and is dropped; in a cluster a server counts only its own subscribers,
-- so the first is notified whether it lives or not, and the others find the lock free at their next poll.
--
-- KEYS 1 lock     hash, as in lock/reentrant-acquire.lua
--      2 waiters  sorted set, as in lock/reentrant-acquire.lua
-- ARGV 1 token    of the acquisition; empty: only leave the queue
--      2 channel  of this process; empty: it is not queued
--      3 requeue  1: append this process to the queue if another was notified, because it has further waiters
--      4 cluster  1: Redis is a cluster
-- Reply  0 if the acquisition held nothing; 1 if it was released; 2 if it was released and another process was notified
local lock, waiters = KEYS[1], KEYS[2]
local token, channel, requeue, cluster = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if token ~= '' then
  if redis.call('HDEL', lock, token) == 0 then return 0 end
  if redis.call('HLEN', lock) > 2 then return 1 end
  redis.call('DEL', lock)
elseif redis.call('ZREM', waiters, channel) == 1 or redis.call('EXISTS', lock) == 1 then
  return 0
end

repeat
  local first = redis.call('ZPOPMIN', waiters)[1]
  if first and (redis.call('PUBLISH', first, lock) > 0 or cluster == '1') then
    if requeue == '1' then
--#include clock
      redis.call('ZADD', waiters, string.format('%.0f', nowUs), channel)
      redis.call('EXPIRE', waiters, 86400)
    end
    return token == '' and 0 or 2
  end
until not first
return token == '' and 0 or 1
