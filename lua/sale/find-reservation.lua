-- Checks whether an order is reserved in one of several sales.
--
-- KEYS of each sale: sorted set of reservations that Postgres does not have yet (see sale/reserve.lua)
-- ARGV 1 order id, 2 its customer, or '' for any
-- Reply  1 when it is, 0 when it is not
local wanted = ' ' .. ARGV[1] .. ' '
for _, key in ipairs(KEYS) do
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    local at = member:find(wanted, 1, true)
    if at and (ARGV[2] == '' or member:sub(1, at - 1) == ARGV[2]) then return 1 end
  end
end
return 0
