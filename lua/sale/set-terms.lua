-- Takes over the terms of a sale from Postgres: window, pause, limit.
--
-- KEYS 1 state  hash: startsMs, endsMs, paused, maxPerOrder, epoch, generation
-- ARGV 1 terms  (see sale/load.lua)
--      2 epoch  in which the sale must have been loaded
-- Reply  1 when they were set, 0 when the sale is not in Redis, or from another epoch
--#include units
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then return 0 end
local startsMs, endsMs, paused, maxPerOrder = ARGV[1]:match('^(%S*) (%S*) (%S*) (%S*)$')
redis.call('HSET', KEYS[1], 'startsMs', startsMs, 'endsMs', endsMs, 'paused', paused, 'maxPerOrder', maxPerOrder)
bumpGeneration(KEYS[1]) -- "sold out" must not be the answer of a paused sale
return 1
