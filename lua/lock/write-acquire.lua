-- Acquires a lock for writing if no acquisition reads or writes. Otherwise it may keep the acquisition's intent, which blocks new
-- readers. An intent that is not kept in time belongs to a dead writer and is dropped.
--
-- KEYS 1 lock     of the writer
--      2 fence    the newest fencing token of this resource
--      3 readers  sorted set: token → expiry of its share, Unix time in milliseconds
--      4 writers  sorted set: token of a waiting writer → expiry of its intent, Unix time in milliseconds
-- ARGV 1 token    of this acquisition
--      2 TTL      milliseconds
--      3 intent   lifetime of the intent, milliseconds; 0: a single attempt without an intent
-- Reply  the fencing token (> 0) if granted, 0 if not
--#include clock
--#include fence
local lock, fence, readers, writers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, intentMs = ARGV[1], tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', readers, '-inf', nowMs)
local holder = redis.pcall('GET', lock)
if (not holder or holder == token) and redis.call('EXISTS', readers) == 0 then
  redis.call('ZREM', writers, token)
  redis.call('SET', lock, token, 'PX', ARGV[2])
  return nextFence(fence, nowUs, 1)
end
if intentMs > 0 then
  redis.call('ZREMRANGEBYSCORE', writers, '-inf', nowMs)
  redis.call('ZADD', writers, nowMs + intentMs, token)
  redis.call('PEXPIRE', writers, intentMs)
end
return 0
