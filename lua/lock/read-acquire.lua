-- Acquires a reader's share unless a writer holds the lock or waits for it.
--
-- KEYS 1 lock     of the writer
--      2 readers  sorted set: token → expiry of its share, Unix time in milliseconds
--      3 writers  sorted set: token of a waiting writer → expiry of its intent, Unix time in milliseconds
-- ARGV 1 token    of this acquisition
--      2 TTL      milliseconds
-- Reply  1 if granted, 0 if not
--#include clock
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', nowMs)
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', nowMs)
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end
redis.call('ZADD', KEYS[2], nowMs + ARGV[2], ARGV[1])
redis.call('PEXPIREAT', KEYS[2], redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
return 1
