-- Returns which sales are sold out, and in which generation: they stay sold out until the generation changes.
--
-- KEYS of each sale: state  hash: remaining, startsMs, endsMs, paused, epoch, generation
-- ARGV 1 epoch  in which the sales must have been loaded
-- Reply  for each sale {generation, milliseconds until it ends, or -1}; {}: a unit is free, or it is not open, or paused, or not loaded
--#include clock
local reply = {}
for i, key in ipairs(KEYS) do
  local state = redis.call('HMGET', key, 'remaining', 'startsMs', 'endsMs', 'epoch', 'generation', 'paused')
  local untilMs = tonumber(state[3] or '') or math.huge
  if not state[1] or state[4] ~= ARGV[1] or tonumber(state[1]) > 0 or not state[5] or state[6] == '1' then
    reply[i] = {}
  elseif nowMs < (tonumber(state[2]) or 0) or nowMs >= untilMs then
    reply[i] = {}
  else
    reply[i] = {state[5], untilMs == math.huge and -1 or untilMs - nowMs}
  end
end
return reply
