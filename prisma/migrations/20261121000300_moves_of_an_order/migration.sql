-- The moves of an order are told in their order: the first one is looked up for each.
CREATE INDEX "unit_moves_order_id_id_idx" ON "unit_moves" ("order_id", "id");
