-- Prolongs a reader's share that has not ended; by the server's clock.
--
-- KEYS 1 readers  sorted set: token → until when its share lives, Unix time in milliseconds
-- ARGV 1 token    of the lease
--      2 TTL      milliseconds from now
-- Reply  1 when prolonged, 0 when the share has ended
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local untilMs = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not untilMs or tonumber(untilMs) <= now then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return 1
