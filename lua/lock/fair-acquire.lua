-- Takes a lock when nobody came earlier, or keeps the asker's place in the line; by the server's clock.
--
-- A place lives for a while and is kept by asking again: one that was not is a dead waiter's, and is dropped.
--
-- KEYS 1 lock
--      2 fence   the newest fencing token of this resource: see lock/acquire.lua
--      3 line    sorted set: token → number in the line
--      4 places  sorted set: token → until when its place lives, Unix time in milliseconds
-- ARGV 1 token   of this claim
--      2 TTL     milliseconds
--      3 place   for how long the place lives, milliseconds; 0: asks once, and takes none
-- Reply  the fencing token, above zero, when the lock was taken; otherwise minus how many are before the asker,
--        counting the holder (at least 1)
local lock, fence, line, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, placeMs = ARGV[1], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

for _, dead in ipairs(redis.call('ZRANGEBYSCORE', places, '-inf', now)) do
  redis.call('ZREM', line, dead)
  redis.call('ZREM', places, dead)
end

local holder = redis.pcall('GET', lock)
local first = redis.call('ZRANGE', line, 0, 0)[1]
if holder == token or (not holder and (not first or first == token)) then
  redis.call('ZREM', line, token)
  redis.call('ZREM', places, token)
  redis.call('SET', lock, token, 'PX', ARGV[2])
  local newest = math.max(time[1] * 1000000 + time[2], tonumber(redis.call('GET', fence) or '0') + 1)
  redis.call('SET', fence, string.format('%.0f', newest), 'EX', 86400)
  return newest
end

if placeMs == 0 then return -1 - redis.call('ZCARD', line) end
if not redis.call('ZSCORE', line, token) then
  local last = redis.call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2] or 0
  redis.call('ZADD', line, last + 1, token)
end
redis.call('ZADD', places, now + placeMs, token)
redis.call('PEXPIRE', line, placeMs)
redis.call('PEXPIRE', places, placeMs)
return -math.max(1, redis.call('ZRANK', line, token) + (holder and 1 or 0))
