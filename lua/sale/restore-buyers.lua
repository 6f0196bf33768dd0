-- Restores the buyers of committed reservations of one sale, some of which sale/acknowledge.lua did not find: a sale that was
-- loaded after the reservation, or is not loaded, lacks its buyer.
--
-- KEYS 1 state         hash: loadedMs, generation, extraUnits and others
--      2 buyers        hash: user id -> "<order id> <reserved at>"
-- ARGV for each reservation: reserved at, user id, order id
-- Reply  how many buyers were restored
--#include units
local restored = 0
local loaded = redis.call('HGET', KEYS[1], 'loadedMs')
local loadedMs = loaded and tonumber(loaded) or math.huge
for i = 1, #ARGV, 3 do
  -- For a reservation that was found, the buyer exists and HSETNX changes nothing.
  if tonumber(ARGV[i]:match('^%d+')) <= loadedMs then
    local units = unitsOf(ARGV[i])
    local record = ARGV[i + 2] .. (units == 1 and ' 0' or ' 0x' .. units)
    if redis.call('HSETNX', KEYS[2], ARGV[i + 1], record) == 1 then
      restored = restored + 1
      if loaded then addExtra(KEYS[1], units - 1) end
    end
  end
end
if restored > 0 and loaded then redis.call('HINCRBY', KEYS[1], 'generation', restored) end
return restored
