-- Reservations of one sale that were settled, and of which some were not there any more: one that was made before the sale
-- was opened (again), or while it is not there, is not known to it, and its buyer is put back.
--
-- KEYS 1 state         hash: loadedMs, generation and others
--      2 buyers        hash: user id -> "<order id> <reserved at>"
-- ARGV for each: reserved at, user id, order id
-- Reply  buyers that were put back
local putBack = 0
local opened = redis.call('HGET', KEYS[1], 'loadedMs')
local loadedMs = opened and tonumber(opened) or math.huge
for i = 1, #ARGV, 3 do
  -- Those that were there are buyers already: putting them back changes nothing.
  if tonumber(ARGV[i]:match('^%d+')) <= loadedMs then
    putBack = putBack + redis.call('HSETNX', KEYS[2], ARGV[i + 1], ARGV[i + 2] .. ' 0')
  end
end
if putBack > 0 and opened then redis.call('HINCRBY', KEYS[1], 'generation', putBack) end -- there are buyers more
return putBack
