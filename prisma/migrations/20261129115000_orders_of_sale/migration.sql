-- Lists and the export read the orders of one sale, the newest first. Without it they read the orders of all sales back to an hour before
-- the sale was created, by the time in the id: orders of a process whose clock was further behind were missing.
-- IF NOT EXISTS: of a large table it can be created before, with CONCURRENTLY.
CREATE INDEX IF NOT EXISTS "orders_sale_id_id_idx" ON "orders" ("sale_id", "id");
