-- Acquires a free lock, or adds an acquisition to a lock that its owner holds. Otherwise it may enqueue a channel for notification.
-- Idempotent: a repeat with the same token counts once.
--
-- KEYS 1 lock     hash: `owner`; `fence`, the owner's first fencing token; one field for each of the owner's acquisitions
--      2 fence    the newest reserved fencing token of this resource
--      3 waiters  sorted set: channel of a waiting process → waiting since, Unix time in microseconds
-- ARGV 1 token    of this acquisition
--      2 owner
--      3 TTL      milliseconds
--      4 tokens   number of fencing tokens to reserve for the owner, at least 1
--      5 channel  to notify when the lock may be free; empty: none
-- Reply  the fencing token (> 0) if granted; otherwise minus the milliseconds left to the current holder (at least 1)
local lock, fence, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, owner, ttlMs, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5]
-- On a lock of another type this is an error reply: that lock counts as held.
local current = redis.pcall('HMGET', lock, 'owner', 'fence')

if current[1] == owner then
  redis.call('HSET', lock, token, 1)
  redis.call('PEXPIRE', lock, math.max(ttlMs, redis.call('PTTL', lock)))
  return tonumber(current[2])
end

--#include clock
--#include fence
if current.err or current[1] then
  if channel ~= '' then
    redis.call('ZADD', waiters, 'NX', string.format('%.0f', nowUs), channel)
    redis.call('EXPIRE', waiters, 86400)
  end
  local leftMs = redis.call('PTTL', lock)
  return -math.max(1, leftMs < 0 and 1000 or leftMs)
end

local first = nextFence(fence, nowUs, tonumber(ARGV[4]))
redis.call('HSET', lock, 'owner', owner, 'fence', string.format('%.0f', first), token, 1)
redis.call('PEXPIRE', lock, ttlMs)
if channel ~= '' then redis.call('ZREM', waiters, channel) end
return first
