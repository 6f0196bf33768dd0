-- Forgets reservations of several sales that Postgres has.
--
-- KEYS for each sale: sorted set of reservations that Postgres does not have yet (see reserve.lua)
-- ARGV for each sale: its reservations, joined by blanks
-- Reply  the numbers of the sales, from 1, of which some were not there: see put-back.lua; or the first error, after all
--        other sales
local incomplete, failure = {}, nil
local members = {} -- of one sale after the other
for sale = 1, #KEYS do
  local n = 0
  for member in ARGV[sale]:gmatch('%S+ %S+ %S+') do
    n = n + 1
    members[n] = member
  end
  local here = redis.pcall('ZREM', KEYS[sale], unpack(members, 1, n))
  if type(here) == 'table' then
    failure = failure or here -- a sale whose key is of another type is no reason to keep the others' reservations
  elseif here < n then
    incomplete[#incomplete + 1] = sale
  end
end
return failure or incomplete
