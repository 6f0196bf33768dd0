-- Which sales are sold out, and in which state of their units: as long as none comes back, they stay so.
--
-- KEYS of each sale: state  hash: remaining, startsMs, endsMs, epoch, generation
-- ARGV 1 epoch  in which the sales must have been opened
-- Reply  for each sale {generation, milliseconds until it ends, or -1}; {}: a unit is free, or another answer is due
local time = redis.call('TIME')
local nowMs = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {}
for i, key in ipairs(KEYS) do
  local state = redis.call('HMGET', key, 'remaining', 'startsMs', 'endsMs', 'epoch', 'generation')
  local untilMs = tonumber(state[3] or '') or math.huge
  if not state[1] or state[4] ~= ARGV[1] or tonumber(state[1]) > 0 or not state[5] then
    reply[i] = {}
  elseif nowMs < (tonumber(state[2]) or 0) or nowMs >= untilMs then
    reply[i] = {}
  else
    reply[i] = {state[5], untilMs == math.huge and -1 or untilMs - nowMs}
  end
end
return reply
