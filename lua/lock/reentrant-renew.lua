-- Renews the lock of an acquisition. It never shortens the expiry, which another acquisition of the owner may need.
--
-- KEYS 1 lock   hash, as in lock/reentrant-acquire.lua
-- ARGV 1 token  of the acquisition
--      2 TTL    milliseconds from now
-- Reply  1 if the acquisition holds the lock, 0 if not
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])))
return 1
