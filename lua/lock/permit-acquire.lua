-- Acquires a permit of a semaphore if one is free. Idempotent: a repeat with the same token has one permit. A permit whose lease has
-- expired is free.
--
-- KEYS 1 holders  sorted set: token → expiry of its permit, Unix time in milliseconds
-- ARGV 1 token    of this acquisition
--      2 TTL      milliseconds
--      3 permits  how many acquisitions may hold one at once
-- Reply  1 if granted, 0 if not
--#include clock
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', nowMs)
local isHolder = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not isHolder and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], nowMs + ARGV[2], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return 1
