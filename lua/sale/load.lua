-- Loads a sale, or the parts of it that are missing; of several processes that load it at the same time, the first wins. Data
-- from another epoch is replaced; so is a copy that differs from Postgres, unless anything has happened in it meanwhile (compare and set). Its reservations are kept only if an answer depends on them: one that was released, and whose
-- customer was answered "busy", may be back with an older snapshot or on a replica that missed the release. Of a copy that is older than
-- the last load, none is kept: no customer was answered because of one that the newer copy lacks.
--
-- KEYS 1 state         hash: remaining, startsMs, endsMs, paused, maxPerOrder, offer, termsVersion, extraUnits, epoch, loadedMs,
--                      generation (see sold-out-latch.ts), after
--      2 counters      hash that counts the units: the state itself, or one field for each segment
--      3 buyers        hash: user id -> "<order id> <reserved at>"
--      4 reservations  sorted set of reservations that Postgres does not have yet
--      5 segments      where a strategy with segments counts the units; only one strategy's counters exist at a time
--      6 restocks      set of the numbers of applied restocks
--      7 a copy of the buyers that Postgres knows, made by the caller; renamed or deleted
--      8 sorted set of the reservations that Postgres has, made by the caller; deleted
-- ARGV 1 units that are free in Postgres
--      2 number of segments; 0 for one counter
--      3 terms (see lib/terms.lua)
--      4 units of the buyers that Postgres knows, beyond one for each
--      5 epoch
--      6 numbers of the restocks that the free units include and Redis has not applied, joined by spaces
--      7 the epoch of the copy that was loaded last, if an answer may depend on a reservation without an order (CONFIRM=accepted); any; or
--        none
--      8 "<free units> <generation>" of a copy that is replaced if it still has both, and no reservation: the generation grows with each
--        added unit or buyer, and everything else takes units; or ''
--      9 how many buyers the copy has
--      10 the epochs of the copies that this one continues (CONFIRM=accepted), joined by spaces; or ''
-- Reply  1 when it was loaded, 0 when it had been; -1 when Redis has lost the copy of the buyers: nothing was changed
--#include terms
--#include units
local state, counters, buyers, reservations, copy = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[7]
local units, segments, epoch = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[5]
local before = redis.call('HGET', state, 'epoch')
local known = before == epoch
local present = known and redis.call('HEXISTS', counters, segments > 0 and '0' or 'remaining') == 1

local function isAsSeen()
  if ARGV[8] == '' or redis.call('ZCARD', reservations) > 0 then return false end
  return ARGV[8] == string.format('%.0f ', freeUnits(state, counters)) .. (redis.call('HGET', state, 'generation') or '')
end
local isReplaced = present and isAsSeen()
if (not present or isReplaced) and redis.call('HLEN', copy) ~= tonumber(ARGV[9]) then
  redis.call('DEL', copy, KEYS[8])
  return -1
end

-- Fences, too, are of an earlier epoch: Postgres, which numbers the leases of some locks, may have gone back.
if not known then redis.call('DEL', state) end
if not known and ARGV[10] ~= '' then redis.call('HSET', state, 'after', ARGV[10]) end
redis.call('HSET', state, 'epoch', epoch)
setTerms(state, ARGV[3])

if present and not isReplaced then
  -- Additional segments start empty and borrow units.
  for i = 1, segments - 1 do redis.call('HSETNX', counters, i, 0) end
  redis.call('DEL', copy, KEYS[8])
  return 0
end

if before and not known and ARGV[7] ~= 'any' and ARGV[7] ~= before then redis.call('DEL', reservations) end
redis.call('ZDIFFSTORE', reservations, 2, reservations, KEYS[8])
redis.call('DEL', KEYS[8])
redis.call('HDEL', state, 'remaining')
--#include clock
local extra = tonumber(ARGV[4])
if not isReplaced then
  redis.call('HSET', state, 'loadedMs', string.format('%.0f', nowMs))
  -- Taken from the clock, so that it differs from any value before Redis lost its memory.
  redis.call('HSET', state, 'generation', string.format('%.0f', nowUs))
  redis.call('DEL', KEYS[6])
end
bumpGeneration(state)
redis.call('DEL', KEYS[5])
for restock in ARGV[6]:gmatch('%S+') do redis.call('SADD', KEYS[6], restock) end
redis.call('DEL', buyers)
if redis.call('EXISTS', copy) == 1 then
  redis.call('RENAME', copy, buyers)
  redis.call('PERSIST', buyers)
end
-- A reserved unit is neither free nor in Postgres; a reservation may have come back since the caller looked which ones Postgres has.
for _, reservation in ipairs(redis.call('ZRANGE', reservations, 0, -1)) do
  local userId, record = reservation:match('^(%S+) (.+)$')
  local reserved = unitsOf(record:match('(%S+)$'))
  if redis.call('HSETNX', buyers, userId, record) == 1 then
    units, extra = units - reserved, extra + reserved - 1
  elseif redis.call('HGET', buyers, userId):match('^%S+') == record:match('^%S+') then
    redis.call('ZREM', reservations, reservation)
  else
    units = units - reserved
  end
end
redis.call('HSET', state, 'extraUnits', extra)
units = math.max(0, units)
if segments == 0 then
  redis.call('HSET', counters, 'remaining', units)
else
  local share, rest = math.floor(units / segments), units % segments
  for i = 0, segments - 1 do
    redis.call('HSET', counters, i, share + (i < rest and 1 or 0))
  end
end
return 1
