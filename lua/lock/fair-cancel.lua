-- Gives back what a claim holds, and the places where it waits.
--
-- KEYS 1 lock
--      2 … sorted sets of tokens that wait
-- ARGV 1 token  of the claim
-- Reply  1 when the lock was given back, 0 when it was not held by this token
for i = 2, #KEYS do redis.call('ZREM', KEYS[i], ARGV[1]) end
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
