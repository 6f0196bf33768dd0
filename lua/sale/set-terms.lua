-- Takes over the terms of a sale from Postgres: window, pause, limit, offer.
--
-- KEYS 1 state  hash: startsMs, endsMs, paused, maxPerOrder, offer, termsVersion, epoch, generation
-- ARGV 1 terms  (see lib/terms.lua)
--      2 epoch  in which the sale must have been loaded
-- Reply  1 when they, or newer ones, are set; 0 when the sale is not in Redis, or from another epoch
--#include units
--#include terms
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then return 0 end
setTerms(KEYS[1], ARGV[1])
bumpGeneration(KEYS[1]) -- "sold out" must not be the answer of a paused sale
return 1
