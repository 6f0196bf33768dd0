-- Defines `nextFence(key, nowUs, count)`: reserves `count` fencing tokens and returns the first; `key` holds the newest.
-- A token is the server's clock in microseconds, or the newest token + 1 if that is greater. The key therefore may expire,
-- and its loss does not lower tokens while the clock moves forward. docs/explanation/locks.md covers a clock that was set back.
local function nextFence(key, nowUs, count)
  local first = math.max(nowUs, tonumber(redis.call('GET', key) or '0') + 1)
  redis.call('SET', key, string.format('%.0f', first + count - 1), 'EX', 86400)
  return first
end
