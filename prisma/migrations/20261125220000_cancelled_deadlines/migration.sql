-- A new order of a customer keeps the deadline of the one that the customer cancelled: see src/store/postgres/insert-orders.ts.
CREATE INDEX "orders_cancelled_deadline_idx" ON "orders" ("sale_id", "user_id", "expires_at") WHERE "status" = 'cancelled';
