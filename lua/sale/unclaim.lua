-- Ends a claim, so that another process may claim the reservation at once (see sale/claim.lua).
--
-- KEYS 1 reservations  sorted set of reservations that Postgres does not have yet (see sale/reserve.lua)
-- ARGV 1 "<user id> <order id> <reserved at>"
--      2 the claim
--      3 when the reservation was made, milliseconds
-- Reply  1 when the claim ended, 0 when another claim holds
if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '') ~= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
