-- Prolongs the lock of a claim that is still in; never shortens it, since another claim of the owner may need it.
--
-- KEYS 1 lock   hash, see lock/reentrant-acquire.lua
-- ARGV 1 token  of the claim
--      2 TTL    milliseconds from now
-- Reply  1 when the claim is in, 0 when not
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])))
return 1
