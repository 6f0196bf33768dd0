-- Takes a lock for writing when nobody reads or writes, or keeps the asker's claim, which stops new readers; by the
-- server's clock. A claim lives for a while and is kept by asking again: one that was not is a dead writer's.
--
-- KEYS 1 lock     of the writer
--      2 fence    the newest fencing token of this resource: see lock/acquire.lua
--      3 readers  sorted set: token → until when its share lives, Unix time in milliseconds
--      4 writers  sorted set: token of a waiting writer → until when its claim lives, the same
-- ARGV 1 token    of this claim
--      2 TTL      milliseconds
--      3 claim    for how long the claim lives, milliseconds; 0: asks once, and leaves none
-- Reply  the fencing token, above zero, when the lock was taken; 0 when not
local lock, fence, readers, writers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, claimMs = ARGV[1], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)
local holder = redis.pcall('GET', lock)
if (not holder or holder == token) and redis.call('EXISTS', readers) == 0 then
  redis.call('ZREM', writers, token)
  redis.call('SET', lock, token, 'PX', ARGV[2])
  local newest = math.max(time[1] * 1000000 + time[2], tonumber(redis.call('GET', fence) or '0') + 1)
  redis.call('SET', fence, string.format('%.0f', newest), 'EX', 86400)
  return newest
end
if claimMs > 0 then
  redis.call('ZREMRANGEBYSCORE', writers, '-inf', now)
  redis.call('ZADD', writers, now + claimMs, token)
  redis.call('PEXPIRE', writers, claimMs)
end
return 0
