CREATE TABLE "sales" (
    "id" SERIAL NOT NULL,
    "name" TEXT NOT NULL,
    "price_cents" INTEGER NOT NULL,
    "stock" INTEGER NOT NULL,
    "sold" INTEGER NOT NULL DEFAULT 0,
    -- Units sold beyond the stock: only the strategy `unsafe` sells any. Active orders = sold + oversold.
    "oversold" INTEGER NOT NULL DEFAULT 0,
    "version" INTEGER NOT NULL DEFAULT 0,
    "starts_at" TIMESTAMPTZ(3),
    "ends_at" TIMESTAMPTZ(3),
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "sales_pkey" PRIMARY KEY ("id"),
    -- The last line of defense: whatever a strategy or Redis believes, no more units are sold than are offered.
    CONSTRAINT "sales_sold_within_stock" CHECK ("sold" <= "stock"),
    CONSTRAINT "sales_sold_not_negative" CHECK ("sold" >= 0),
    CONSTRAINT "sales_oversold_not_negative" CHECK ("oversold" >= 0),
    CONSTRAINT "sales_price_not_negative" CHECK ("price_cents" >= 0),
    CONSTRAINT "sales_window_in_order" CHECK ("starts_at" < "ends_at")
)
-- Every purchase updates its sale's row. Free space on the page keeps these updates out of the index (HOT).
WITH (fillfactor = 50);

CREATE TABLE "orders" (
    "id" UUID NOT NULL,
    "sale_id" INTEGER NOT NULL,
    "user_id" TEXT NOT NULL,
    "status" TEXT NOT NULL,
    "price_cents" INTEGER NOT NULL,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "expires_at" TIMESTAMPTZ(3) NOT NULL,
    "paid_at" TIMESTAMPTZ(3),
    "closed_at" TIMESTAMPTZ(3),
    CONSTRAINT "orders_pkey" PRIMARY KEY ("id"),
    -- 'refund-due': paid after it had expired or was cancelled, and no unit was free. Not active, and final.
    CONSTRAINT "orders_status_known" CHECK ("status" IN ('pending', 'paid', 'cancelled', 'expired', 'refund-due')),
    CONSTRAINT "orders_sale_id_fkey" FOREIGN KEY ("sale_id") REFERENCES "sales"("id") ON DELETE RESTRICT ON UPDATE RESTRICT
);
-- One active order per customer. A cancelled or expired order is not in this index.
CREATE UNIQUE INDEX "orders_one_active_per_customer" ON "orders" ("sale_id", "user_id")
    WHERE "status" IN ('pending', 'paid');
-- For the search for expired orders.
CREATE INDEX "orders_pending_expires_at_idx" ON "orders" ("expires_at") WHERE "status" = 'pending';

CREATE TABLE "points_entries" (
    "id" BIGSERIAL NOT NULL,
    "user_id" TEXT NOT NULL,
    "source_type" TEXT NOT NULL,
    "source_id" TEXT NOT NULL,
    "points" INTEGER NOT NULL,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "points_entries_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "points_entries_not_zero" CHECK ("points" <> 0)
);
-- Points once: a repeated award violates this key. There is no lock and no read before the insert.
CREATE UNIQUE INDEX "points_entries_one_per_source" ON "points_entries" ("user_id", "source_type", "source_id");

-- The points that an order earns: one for each whole hundred cents, and at least one.
CREATE FUNCTION points_earned(price_cents integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN greatest(1, price_cents / 100);

CREATE TABLE "payment_notifications" (
    "id" TEXT NOT NULL,
    "order_id" UUID NOT NULL,
    "amount_cents" INTEGER NOT NULL,
    -- The effect of the payment.
    "result" TEXT NOT NULL DEFAULT 'paid',
    "received_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "payment_notifications_pkey" PRIMARY KEY ("id")
);

-- The outbox towards other systems. A task that must exist once has a key, such as 'ship:<order id>'.
CREATE TABLE "tasks" (
    "id" BIGSERIAL NOT NULL,
    "kind" TEXT NOT NULL,
    "key" TEXT,
    "payload" JSONB NOT NULL,
    "state" TEXT NOT NULL DEFAULT 'waiting',
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "run_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "last_error" TEXT,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "tasks_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "tasks_state_known" CHECK ("state" IN ('waiting', 'queued', 'processing', 'done', 'retry', 'dead'))
);
CREATE INDEX "tasks_state_run_at_idx" ON "tasks" ("state", "run_at");
CREATE UNIQUE INDEX "tasks_key_key" ON "tasks" ("key");

-- The outbox towards Redis: changes that Postgres has committed and the mirror of the sale does not show yet. Written in the
-- transaction of the change; deleted once Redis has applied it.
--   release  the order is closed: its unit is free, and its customer may buy again
--   take     a late payment revived the order: it has a unit again
--   record   the same, and the unit was taken in Redis beforehand: only the buyer is missing there
--   restock  an operator added `units`
CREATE TABLE "mirror_outbox" (
    "id" BIGSERIAL NOT NULL,
    "sale_id" INTEGER NOT NULL,
    "change" TEXT NOT NULL,
    "order_id" UUID,
    "user_id" TEXT,
    "units" INTEGER NOT NULL DEFAULT 1,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "mirror_outbox_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "mirror_outbox_change_known" CHECK ("change" IN ('release', 'take', 'record', 'restock')),
    CONSTRAINT "mirror_outbox_order_named" CHECK (
        ("change" = 'restock') = ("order_id" IS NULL) AND ("order_id" IS NULL) = ("user_id" IS NULL)),
    CONSTRAINT "mirror_outbox_units_positive" CHECK ("units" > 0)
);
-- Changes of one order are published in their order: the relay looks up the first one of each.
CREATE INDEX "mirror_outbox_order_id_id_idx" ON "mirror_outbox" ("order_id", "id");

-- Each incarnation of Redis that the service has met. The number is the epoch. Data of another epoch was written before
-- Redis lost its memory, was restored from an old snapshot or was replaced. The number is random, so that a new database does
-- not take what another one left in Redis for its own.
CREATE TABLE "redis_epochs" (
    "epoch" INTEGER NOT NULL DEFAULT (1 + floor(random() * 2147483646))::int,
    "incarnation" TEXT NOT NULL,
    "first_seen_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "redis_epochs_pkey" PRIMARY KEY ("epoch"),
    CONSTRAINT "redis_epochs_incarnation_key" UNIQUE ("incarnation")
);

-- The strategy `skip-locked`: one row for each unit on offer; "order_id" is the order that has it.
CREATE TABLE "stock_units" (
    "sale_id" INTEGER NOT NULL,
    "unit" INTEGER NOT NULL,
    "order_id" UUID,
    CONSTRAINT "stock_units_pkey" PRIMARY KEY ("sale_id", "unit"),
    CONSTRAINT "stock_units_sale_id_fkey" FOREIGN KEY ("sale_id") REFERENCES "sales"("id") ON DELETE RESTRICT ON UPDATE RESTRICT
);
-- The free units, which attempts search; and at most one unit per order.
CREATE INDEX "stock_units_free_idx" ON "stock_units" ("sale_id", "unit") WHERE "order_id" IS NULL;
CREATE UNIQUE INDEX "stock_units_order_id_key" ON "stock_units" ("order_id") WHERE "order_id" IS NOT NULL;

-- The lock `postgres-row`. A row outlives its lease: its fencing token must never start again.
CREATE TABLE "lock_rows" (
    "resource" TEXT NOT NULL,
    "owner" TEXT NOT NULL,
    "fence" BIGINT NOT NULL,
    "expires_at" TIMESTAMPTZ NOT NULL,
    CONSTRAINT "lock_rows_pkey" PRIMARY KEY ("resource"),
    CONSTRAINT "lock_rows_fence_positive" CHECK ("fence" > 0)
)
-- Every lease, renewal and release updates its row. Free space on the page keeps these updates out of the index (HOT).
WITH (fillfactor = 50);

-- Returns 1 before the deadline and raises an error after it, which rolls the statement back. Each statement that places an
-- order multiplies the units that it adds to `sales.sold` by this: see store/late-requests.ts.
CREATE FUNCTION before_deadline(deadline timestamptz) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF clock_timestamp() >= deadline THEN
    RAISE EXCEPTION 'the statement came after its deadline' USING ERRCODE = 'ST001';
  END IF;
  RETURN 1;
END
$$;
