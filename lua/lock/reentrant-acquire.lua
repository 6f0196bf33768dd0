-- Lets a claim in: where nobody is, or again where its owner is; otherwise it may stand in line to be woken.
--
-- KEYS 1 lock     hash: owner; fence, the owner's fencing token; and a field for each of the owner's claims
--      2 fence    the newest fencing token that may be in use for this resource
--      3 waiters  sorted set: channel of a process that waits → since when, server's clock in microseconds
-- ARGV 1 token    of this claim; asking twice with one token counts once
--      2 owner    who asks
--      3 TTL      milliseconds
--      4 tokens   how many fencing tokens to set aside for the owner, at least 1
--      5 channel  that is told when it may ask again; empty: does not stand in line
-- Reply  the fencing token, above zero, when the claim is in; otherwise minus the milliseconds that are left to the
--        present holder (at least 1)
--
-- A fencing token is the server's clock in microseconds, or one more than the last token where that is more. So a key
-- that was lost or has expired takes no token back while the clock goes forward, and the key need not be kept for ever.
-- With the key lost AND the clock set back, tokens are lower than before: docs/explanation/locks.md says what protects a resource then.
local lock, fence, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, owner, ttlMs, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5]
-- A lock of another kind under this key is an error here, and is respected.
local present = redis.pcall('HMGET', lock, 'owner', 'fence')

if present[1] == owner then
  redis.call('HSET', lock, token, 1)
  redis.call('PEXPIRE', lock, math.max(ttlMs, redis.call('PTTL', lock)))
  return tonumber(present[2])
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if present.err or present[1] then
  if channel ~= '' then
    redis.call('ZADD', waiters, 'NX', string.format('%.0f', now), channel)
    redis.call('EXPIRE', waiters, 86400)
  end
  local leftMs = redis.call('PTTL', lock)
  return -math.max(1, leftMs < 0 and 1000 or leftMs)
end

local first = math.max(now, tonumber(redis.call('GET', fence) or '0') + 1)
redis.call('SET', fence, string.format('%.0f', first + tonumber(ARGV[4]) - 1), 'EX', 86400)
redis.call('HSET', lock, 'owner', owner, 'fence', string.format('%.0f', first), token, 1)
redis.call('PEXPIRE', lock, ttlMs)
if channel ~= '' then redis.call('ZREM', waiters, channel) end
return first
