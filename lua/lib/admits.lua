-- Defines `admits(key, field, token)`: false if a holder with a greater fencing token has already come here. Otherwise it records the
-- token in the hash `key`, so that no earlier holder is admitted after it. A lock without tokens has the token 0, and is always admitted.
local function admits(key, field, token)
  local own = tonumber(token)
  if own == 0 then return true end
  if own < tonumber(redis.call('HGET', key, field) or '0') then return false end
  redis.call('HSET', key, field, token)
  return true
end
