-- Takes a lock, with its expiry, at once.
--
-- KEYS 1 lock
--      2 fence   the newest fencing token of this resource
-- ARGV 1 token   of this claim; asking twice with one token does not lock the asker out
--      2 TTL     milliseconds
-- Reply  the fencing token, above zero, when the lock was taken; otherwise minus the milliseconds that are left to
--        the present lease (at least 1)
--
-- A fencing token is the server's clock in microseconds, or one more than the last token where that is more. So a key
-- that was lost or has expired takes no token back while the clock goes forward, and the key need not be kept for ever.
-- With the key lost AND the clock set back, tokens are lower than before: docs/explanation/locks.md says what protects a resource then.
-- A lock of another kind under this key is an error here, and is respected.
local holder = redis.pcall('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return -math.max(1, redis.call('PTTL', KEYS[1]))
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local time = redis.call('TIME')
local token = math.max(time[1] * 1000000 + time[2], tonumber(redis.call('GET', KEYS[2]) or '0') + 1)
redis.call('SET', KEYS[2], string.format('%.0f', token), 'EX', 86400)
return token
