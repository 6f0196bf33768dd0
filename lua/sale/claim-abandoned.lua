-- Claims the reservations of a sale whose claims have ended, oldest first (see sale/claim.lua).
--
-- KEYS 1 reservations  sorted set of reservations that Postgres does not have yet (see sale/reserve.lua)
-- ARGV 1 how long a claim holds, milliseconds
--      2 maximum number of reservations to claim
-- Reply  {the new claim, reservation, …}
--#include clock
local reply = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', nowMs - ARGV[1], 'LIMIT', 0, ARGV[2])
for _, member in ipairs(reply) do redis.call('ZADD', KEYS[1], nowMs, member) end
table.insert(reply, 1, nowMs)
return reply
