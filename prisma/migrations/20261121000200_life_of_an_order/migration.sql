-- Paid after it had expired, and no unit was left: the money goes back. Not active, and final.
ALTER TABLE "orders" DROP CONSTRAINT "orders_status_known";
ALTER TABLE "orders" ADD CONSTRAINT "orders_status_known"
    CHECK ("status" IN ('pending', 'paid', 'cancelled', 'expired', 'refund-due'));

-- What the search for expired orders reads; paid and closed orders are not in it.
CREATE INDEX "orders_pending_expires_at_idx" ON "orders" ("expires_at") WHERE "status" = 'pending';

-- A unit that Postgres has returned or taken again and Redis has not heard of yet. Written in the transaction of the
-- change; deleted once Redis has it. `direction`: 'back' to the units on offer, 'out' of them.
CREATE TABLE "unit_moves" (
    "id" BIGSERIAL NOT NULL,
    "order_id" UUID NOT NULL,
    "sale_id" INTEGER NOT NULL,
    "user_id" TEXT NOT NULL,
    "direction" TEXT NOT NULL,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "unit_moves_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "unit_moves_direction_known" CHECK ("direction" IN ('back', 'out'))
);

-- Each Redis that the service has met, by its run id. The number is the epoch; what Redis holds under another one was
-- written before it lost its memory, went back to an old snapshot or was replaced.
CREATE TABLE "redis_epochs" (
    "epoch" SERIAL NOT NULL,
    "incarnation" TEXT NOT NULL,
    "first_seen_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "redis_epochs_pkey" PRIMARY KEY ("epoch"),
    CONSTRAINT "redis_epochs_incarnation_key" UNIQUE ("incarnation")
);

-- The strategy `skip-locked`: one row for each unit that is on offer; "order_id" is who has it.
CREATE TABLE "stock_units" (
    "sale_id" INTEGER NOT NULL,
    "unit" INTEGER NOT NULL,
    "order_id" UUID,
    CONSTRAINT "stock_units_pkey" PRIMARY KEY ("sale_id", "unit"),
    CONSTRAINT "stock_units_sale_id_fkey" FOREIGN KEY ("sale_id") REFERENCES "sales"("id") ON DELETE RESTRICT ON UPDATE RESTRICT
);
-- The free ones, which is where attempts look; and at most one unit for an order.
CREATE INDEX "stock_units_free_idx" ON "stock_units" ("sale_id", "unit") WHERE "order_id" IS NULL;
CREATE UNIQUE INDEX "stock_units_order_id_key" ON "stock_units" ("order_id") WHERE "order_id" IS NOT NULL;

-- A task that must exist once has a key, such as 'ship:<order id>'.
ALTER TABLE "tasks" ADD COLUMN "key" TEXT;
CREATE UNIQUE INDEX "tasks_key_key" ON "tasks" ("key");

-- What the payment did, so that a repeated notification hears the same.
ALTER TABLE "payment_notifications" ADD COLUMN "result" TEXT NOT NULL DEFAULT 'paid';
