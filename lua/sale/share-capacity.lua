-- Notes how many attempts a second a process can serve, and adds up what the others noted lately.
--
-- KEYS 1 capacity  hash: process -> "<attempts a second> <noted at>", milliseconds by this server's clock
-- ARGV 1 process
--      2 attempts a second
--      3 how long a figure counts, milliseconds
-- Reply  attempts a second of the other processes together
--#include clock
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', nowMs))
local noted, others = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #noted, 2 do
  local perSecond, notedMs = string.match(noted[i + 1], '(%S+) (%S+)')
  -- A figure is from the future when another server, whose clock is behind, has taken over.
  if math.abs(nowMs - notedMs) > tonumber(ARGV[3]) then
    redis.call('HDEL', KEYS[1], noted[i])
  elseif noted[i] ~= ARGV[1] then
    others = others + perSecond
  end
end
return others
