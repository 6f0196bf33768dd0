-- Releases a lock that its acquisition still holds, and removes the acquisition from the sets of waiters.
--
-- KEYS 1 lock
--      2 … sorted sets whose members are tokens of waiters
-- ARGV 1 token  of the acquisition
-- Reply  1 if the lock was released, 0 if the token did not hold it
for i = 2, #KEYS do redis.call('ZREM', KEYS[i], ARGV[1]) end
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
