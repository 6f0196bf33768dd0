-- Gives a lock back, if it is still this holder's.
--
-- KEYS 1 lock
-- ARGV 1 token  of the lease
-- Reply  1 when given back, 0 when the lock was not held by this token
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
