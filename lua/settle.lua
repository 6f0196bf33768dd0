-- Forgets reservations that Postgres has. Where one is not there, Redis has lost its memory since: its buyer, who is
-- missing from what was opened again, is put back.
--
-- KEYS 1 buyers        hash: user id -> "<order id> <entry id>"
--      2 reservations  stream of reservations that Postgres does not have yet
-- ARGV for each: entry id, user id, order id
-- Reply  reservations that were forgotten
local forgotten = 0
for i = 1, #ARGV, 3 do
  if redis.call('XDEL', KEYS[2], ARGV[i]) == 1 then
    forgotten = forgotten + 1
  else
    redis.call('HSETNX', KEYS[1], ARGV[i + 1], ARGV[i + 2] .. ' 0-0')
  end
end
return forgotten
