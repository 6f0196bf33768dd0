-- Forgets reservations of several sales that Postgres has.
--
-- KEYS for each sale: stream of reservations that Postgres does not have yet
-- ARGV for each sale: the ids of the entries, joined by blanks
-- Reply  the numbers of the sales, from 1, of which some were not there: see put-back.lua; or the first error, after all
--        other sales
local incomplete, failure = {}, nil
local ids = {} -- of one sale after the other
for sale = 1, #KEYS do
  local n = 0
  for id in ARGV[sale]:gmatch('%S+') do
    n = n + 1
    ids[n] = id
  end
  local here = redis.pcall('XDEL', KEYS[sale], unpack(ids, 1, n))
  if type(here) == 'table' then
    failure = failure or here -- a sale whose key is of another type is no reason to keep the others' reservations
  elseif here < n then
    incomplete[#incomplete + 1] = sale
  end
end
return failure or incomplete
