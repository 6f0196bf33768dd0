-- Checks whether an order is reserved in a sale.
--
-- KEYS 1 reservations  sorted set of reservations that Postgres does not have yet (see sale/reserve.lua)
-- ARGV 1 order id
-- Reply  1 when it is, 0 when it is not
local wanted = ' ' .. ARGV[1] .. ' '
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if member:find(wanted, 1, true) then return 1 end
end
return 0
