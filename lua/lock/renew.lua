-- Renews a lease that is still held.
--
-- KEYS 1 lock
-- ARGV 1 token  of the lease
--      2 TTL    milliseconds from now
-- Reply  1 if renewed, 0 if the token does not hold the lock
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
