-- Claims a reservation that its process has abandoned. Only the process with the claim may commit or release it.
--
-- A claim is the reservation's score: the instant, by Redis's clock, of the reservation or of its latest claim. It is valid
-- for a limited time. The process that made the reservation has the first claim.
--
-- KEYS 1 buyers        hash: user id -> "<order id> <reserved at>"
--      2 reservations  sorted set of reservations that Postgres does not have yet (see sale/reserve.lua)
--      3 state         hash: epoch
-- ARGV 1 user id
--      2 "<order id> <reserved at>"
--      3 how long a claim holds, milliseconds
--      4 epoch in which the sale must have been loaded
-- Reply  the new claim; 0 when another claim holds, or the sale is from another epoch; -1 when the reservation was released. A
--        buyer without a reservation is recorded again: Postgres has the order, or Redis lost part of its memory.
if redis.call('HGET', KEYS[3], 'epoch') ~= ARGV[4] then return 0 end
local member = ARGV[1] .. ' ' .. ARGV[2]
--#include clock
local claimedMs = redis.call('ZSCORE', KEYS[2], member)
if claimedMs then
  if tonumber(claimedMs) + ARGV[3] > nowMs then return 0 end
elseif redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return -1
end
redis.call('ZADD', KEYS[2], nowMs, member)
return nowMs
