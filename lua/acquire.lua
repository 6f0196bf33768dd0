-- Takes a lock, with its expiry, at once.
--
-- KEYS 1 lock
--      2 fence   counter of all leases of this resource
-- ARGV 1 token   of this claim; asking twice with one token does not lock the asker out
--      2 TTL     milliseconds
-- Reply  the fencing token, above zero, when the lock was taken; otherwise minus the milliseconds that are left to
--        the present lease (at least 1)
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return -math.max(1, redis.call('PTTL', KEYS[1]))
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('INCR', KEYS[2])
