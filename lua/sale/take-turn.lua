-- Gives a customer a turn in a sale: the instant from which a ticket is valid. A turn is kept until its ticket expires, or the sale's
-- start moves away from it: while the start stays, a new turn is never earlier than the one given.
-- Without Redis, the function take_turn of Postgres does the same: a change of one is a change of both.
-- KEYS  1 turns of the sale (hash: customer → ms; #next: where the next free turn is; #early: turns drawn in the lottery)
-- ARGV  1 customer, 2 now, 3 turn drawn in the lottery or '' after it, 4 start of the sale, 5 length of the lottery,
--       6 turns a second, 7 ms for which a turn is valid, 8 ms for which the turns are kept (all times in ms)
-- Replies with the turn, ms.
local now, start, spread = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local given, drawn, rate = tonumber(redis.call('HGET', KEYS[1], ARGV[1])), tonumber(ARGV[3]), tonumber(ARGV[6])
-- After the lottery: the next free turn, behind the lottery's if they are more than can be served meanwhile.
local early = tonumber(redis.call('HGET', KEYS[1], '#early')) or 0
local turn = drawn
  or math.max(now, tonumber(redis.call('HGET', KEYS[1], '#next')) or 0, spread > 0 and start + early * 1000 / rate or 0)
local isValid = given and now < given + tonumber(ARGV[7])
if isValid and given <= turn + 1 and (not drawn or given >= start) then return string.format('%.0f', given) end

if drawn then
  redis.call('HINCRBY', KEYS[1], '#early', 1)
else
  redis.call('HSET', KEYS[1], '#next', string.format('%.3f', turn + 1000 / rate))
end
local text = string.format('%.0f', turn)
redis.call('HSET', KEYS[1], ARGV[1], text)
redis.call('PEXPIREAT', KEYS[1], math.max(math.floor(turn), start + spread) + tonumber(ARGV[8]))
return text
