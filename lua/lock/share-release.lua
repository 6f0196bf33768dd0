-- Releases a share of a resource: a reader's, or a permit of a semaphore.
--
-- KEYS 1 shares  sorted set: token → expiry of its share, Unix time in milliseconds
-- ARGV 1 token   of the acquisition
-- Reply  1 if the share was still held, 0 if not
--#include clock
local expiresMs = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not expiresMs then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
return tonumber(expiresMs) > nowMs and 1 or 0
