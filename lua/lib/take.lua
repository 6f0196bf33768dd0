-- Part of the scripts that take units for an order that Postgres has, or is about to have. Needs `units`.
-- `takeUnits(state, counters, first, quantity)` takes them from the counter `first`, and then from the others. What is not free is
-- reserved for attempts that Postgres will reject.
local function takeUnits(state, counters, first, quantity)
  local fields = counters == state and {} or redis.call('HKEYS', counters)
  table.insert(fields, 1, first)
  for _, field in ipairs(fields) do
    local units = math.min(quantity, math.max(0, tonumber(redis.call('HGET', counters, field) or '0')))
    if units > 0 then redis.call('HINCRBY', counters, field, -units) end
    quantity = quantity - units
    if quantity == 0 then return end
  end
end
