-- Releases a lock that its acquisition still holds.
--
-- KEYS 1 lock
-- ARGV 1 token  of the lease
-- Reply  1 if released, 0 if the token did not hold the lock
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
