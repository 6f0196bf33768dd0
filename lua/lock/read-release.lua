-- Gives a reader's share back; by the server's clock.
--
-- KEYS 1 readers  sorted set: token → until when its share lives, Unix time in milliseconds
-- ARGV 1 token    of the claim
-- Reply  1 when it was still held, 0 when not
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local untilMs = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not untilMs then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
return tonumber(untilMs) > now and 1 or 0
