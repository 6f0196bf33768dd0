-- Claims a reservation that its process left: whoever has the claim may commit or release it, and nobody else may.
--
-- A claim is the reservation's score: the instant, by Redis's clock, at which it was made or claimed. It lasts for a while,
-- and whoever made a reservation has the first claim to it.
--
-- KEYS 1 buyers        hash: user id -> "<order id> <reserved at>"
--      2 reservations  sorted set of reservations that Postgres does not have yet (see sale/reserve.lua)
-- ARGV 1 user id
--      2 "<order id> <reserved at>"
--      3 how long a claim lasts, milliseconds
-- Reply  the new claim; 0 when another claim lasts still; -1 when the reservation was released. A buyer without a
--        reservation is recorded anew: Postgres has the order, or Redis lost a part of its memory.
local member = ARGV[1] .. ' ' .. ARGV[2]
local time = redis.call('TIME')
local nowMs = time[1] * 1000 + math.floor(time[2] / 1000)
local claimedMs = redis.call('ZSCORE', KEYS[2], member)
if claimedMs then
  if tonumber(claimedMs) + ARGV[3] > nowMs then return 0 end
elseif redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return -1
end
redis.call('ZADD', KEYS[2], nowMs, member)
return nowMs
