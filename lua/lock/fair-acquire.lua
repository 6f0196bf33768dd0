-- Acquires a lock in queue order, or keeps the acquisition's place in the queue. A place that is not kept in time belongs to a
-- dead waiter and is dropped.
--
-- KEYS 1 lock
--      2 fence   the newest fencing token of this resource
--      3 queue   sorted set: token → position
--      4 places  sorted set: token → expiry of its place, Unix time in milliseconds
-- ARGV 1 token   of this acquisition
--      2 TTL     milliseconds
--      3 place   lifetime of the place, milliseconds; 0: a single attempt without a place
-- Reply  the fencing token (> 0) if granted; otherwise minus the number of acquisitions ahead, the holder included (at least 1)
--#include clock
--#include fence
local lock, fence, queue, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, placeMs = ARGV[1], tonumber(ARGV[3])

for _, dead in ipairs(redis.call('ZRANGEBYSCORE', places, '-inf', nowMs)) do
  redis.call('ZREM', queue, dead)
  redis.call('ZREM', places, dead)
end

local holder = redis.pcall('GET', lock)
local head = redis.call('ZRANGE', queue, 0, 0)[1]
if holder == token or (not holder and (not head or head == token)) then
  redis.call('ZREM', queue, token)
  redis.call('ZREM', places, token)
  redis.call('SET', lock, token, 'PX', ARGV[2])
  return nextFence(fence, nowUs, 1)
end

if placeMs == 0 then return -1 - redis.call('ZCARD', queue) end
if not redis.call('ZSCORE', queue, token) then
  local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2] or 0
  redis.call('ZADD', queue, last + 1, token)
end
redis.call('ZADD', places, nowMs + placeMs, token)
redis.call('PEXPIRE', queue, placeMs)
redis.call('PEXPIRE', places, placeMs)
return -math.max(1, redis.call('ZRANK', queue, token) + (holder and 1 or 0))
