-- Acquires a lock with its expiry. Idempotent: a repeat with the same token is granted again.
--
-- KEYS 1 lock
--      2 fence   the newest fencing token of this resource
-- ARGV 1 token   of this acquisition
--      2 TTL     milliseconds
-- Reply  the fencing token (> 0) if granted; otherwise minus the milliseconds left to the current lease (at least 1)
--
-- GET on a lock of another type is an error reply, which differs from the token: that lock counts as held.
local holder = redis.pcall('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return -math.max(1, redis.call('PTTL', KEYS[1]))
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
--#include clock
--#include fence
return nextFence(KEYS[2], nowUs, 1)
