-- Forgets reservations that Postgres has. One that was made before the sale was opened (again), or while it is not
-- there, is not known to it: its buyer is put back.
--
-- KEYS 1 state         hash: openedMs, returns and others
--      2 buyers        hash: user id -> "<order id> <entry id>"
--      3 reservations  stream of reservations that Postgres does not have yet
-- ARGV for each: entry id, user id, order id
-- Reply  reservations that were forgotten
local ids = {}
for i = 1, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local forgotten = redis.call('XDEL', KEYS[3], unpack(ids))
if forgotten == #ids then return forgotten end

-- Those that were there are buyers already: putting them back changes nothing.
local opened = redis.call('HGET', KEYS[1], 'openedMs')
local openedMs = opened and tonumber(opened) or math.huge
for i = 1, #ARGV, 3 do
  if tonumber(ARGV[i]:match('^%d+')) <= openedMs then
    if redis.call('HSETNX', KEYS[2], ARGV[i + 1], ARGV[i + 2] .. ' 0-0') == 1 and opened then
      redis.call('HINCRBY', KEYS[1], 'returns', 1) -- there is a buyer more
    end
  end
end
return forgotten
