-- Claims the reservations of a sale whose claims have ended, oldest first (see sale/claim.lua).
--
-- KEYS 1 reservations  sorted set of reservations that Postgres does not have yet (see sale/reserve.lua)
--      2 state         hash: epoch
-- ARGV 1 how long a claim holds, milliseconds
--      2 maximum number of reservations to claim
--      3 epoch in which the sale must have been loaded; in another one, nothing is claimed
-- Reply  {the new claim, reservation, …}; nil when there are some, and the sale is not loaded
--#include clock
local reply = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', nowMs - ARGV[1], 'LIMIT', 0, ARGV[2])
if #reply > 0 and redis.call('HGET', KEYS[2], 'epoch') ~= ARGV[3] then return false end
for _, member in ipairs(reply) do redis.call('ZADD', KEYS[1], nowMs, member) end
table.insert(reply, 1, nowMs)
return reply
