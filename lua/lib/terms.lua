-- Defines a helper for scripts that set the terms of a sale.
--
-- `setTerms(state, terms)` sets them, unless newer ones are set: two changes may reach Redis in the other order. `terms`: first instant of
-- the sale, milliseconds since 1970, or ''; first instant after the sale, or ''; 1 if it is paused, or ''; the most units for an order;
-- the offer: '@' and the price of a unit in cents, with '/' and the payment window in seconds if it has one of its own; the version of the
-- sale that has them; joined by spaces. Without a version, which earlier versions of Stampede do not set, they are older.
local function setTerms(state, terms)
  local startsMs, endsMs, paused, maxPerOrder, offer, version = terms:match('^(%S*) (%S*) (%S*) (%S*) (%S*) (%d+)$')
  if tonumber(redis.call('HGET', state, 'termsVersion') or -1) > tonumber(version) then return end
  redis.call('HSET', state, 'startsMs', startsMs, 'endsMs', endsMs, 'paused', paused, 'maxPerOrder', maxPerOrder,
    'offer', offer, 'termsVersion', version)
end
