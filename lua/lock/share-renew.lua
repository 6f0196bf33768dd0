-- Renews a share of a resource that has not expired: a reader's, or a permit of a semaphore.
--
-- KEYS 1 shares  sorted set: token → expiry of its share, Unix time in milliseconds
-- ARGV 1 token   of the lease
--      2 TTL     milliseconds from now
-- Reply  1 if renewed, 0 if the share has expired
--#include clock
local expiresMs = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not expiresMs or tonumber(expiresMs) <= nowMs then return 0 end
redis.call('ZADD', KEYS[1], nowMs + ARGV[2], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return 1
