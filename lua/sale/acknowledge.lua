-- Removes reservations of several sales that are committed in Postgres.
--
-- The reservations of a sale that is not loaded are kept: a load in progress may have read the free units from Postgres before
-- these orders were committed, and subtracts the reservations it finds. Once the sale is loaded, the reaper removes them.
--
-- KEYS for each sale: sorted set of reservations that Postgres does not have yet (see sale/reserve.lua), state
-- ARGV 1 epoch in which the sales must have been loaded
--      then for each sale: its reservations, joined by spaces
-- Reply  the numbers of the sales, from 1, of which some reservations were missing (see sale/restore-committed.lua); or the first
--        error, after all other sales are processed
local incomplete, failure = {}, nil
local members = {} -- reused for each sale
for key = 1, #KEYS, 2 do
  local sale = (key + 1) / 2
  local n = 0
  for member in ARGV[sale + 1]:gmatch('%S+ %S+ %S+') do
    n = n + 1
    members[n] = member
  end
  local here
  if redis.pcall('HGET', KEYS[key + 1], 'epoch') == ARGV[1] then
    here = redis.pcall('ZREM', KEYS[key], unpack(members, 1, n))
  else
    local scores = redis.pcall('ZMSCORE', KEYS[key], unpack(members, 1, n))
    here = scores.err and scores or 0
    for i = 1, scores.err and 0 or n do here = here + (scores[i] and 1 or 0) end
  end
  if type(here) == 'table' then
    failure = failure or here -- a sale with a key of the wrong type must not stop the others
  elseif here < n then
    incomplete[#incomplete + 1] = sale
  end
end
return failure or incomplete
