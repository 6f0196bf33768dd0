-- Takes a reader's share, unless a writer holds the lock or waits for it; by the server's clock.
--
-- KEYS 1 lock     of the writer
--      2 readers  sorted set: token → until when its share lives, Unix time in milliseconds
--      3 writers  sorted set: token of a waiting writer → until when its claim lives, the same
-- ARGV 1 token    of this claim
--      2 TTL      milliseconds
-- Reply  1 when taken, 0 when not
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('PEXPIREAT', KEYS[2], redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2])
return 1
