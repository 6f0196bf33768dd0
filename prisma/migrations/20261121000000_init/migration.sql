CREATE TABLE "sales" (
    "id" SERIAL NOT NULL,
    "name" TEXT NOT NULL,
    "price_cents" INTEGER NOT NULL,
    "stock" INTEGER NOT NULL,
    "sold" INTEGER NOT NULL DEFAULT 0,
    "version" INTEGER NOT NULL DEFAULT 0,
    "starts_at" TIMESTAMPTZ(3),
    "ends_at" TIMESTAMPTZ(3),
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "sales_pkey" PRIMARY KEY ("id"),
    -- The last fence: whatever a strategy or Redis believes, no more units are sold than are offered.
    CONSTRAINT "sales_sold_within_stock" CHECK ("sold" <= "stock"),
    CONSTRAINT "sales_sold_not_negative" CHECK ("sold" >= 0),
    CONSTRAINT "sales_price_not_negative" CHECK ("price_cents" >= 0),
    CONSTRAINT "sales_window_in_order" CHECK ("starts_at" < "ends_at")
)
-- Every purchase rewrites its sale's row. Room on the page keeps those rewrites out of the index (HOT updates).
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
    CONSTRAINT "orders_status_known" CHECK ("status" IN ('pending', 'paid', 'cancelled', 'expired')),
    CONSTRAINT "orders_sale_id_fkey" FOREIGN KEY ("sale_id") REFERENCES "sales"("id") ON DELETE RESTRICT ON UPDATE RESTRICT
);

-- One per customer: a cancelled or expired order frees the customer, an active one does not.
CREATE UNIQUE INDEX "orders_one_active_per_customer" ON "orders" ("sale_id", "user_id")
    WHERE "status" IN ('pending', 'paid');

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

-- Points once: a repeated award meets this key and nothing else; there is no lock and no look before the insert.
CREATE UNIQUE INDEX "points_entries_one_per_source" ON "points_entries" ("user_id", "source_type", "source_id");

CREATE TABLE "payment_notifications" (
    "id" TEXT NOT NULL,
    "order_id" UUID NOT NULL,
    "amount_cents" INTEGER NOT NULL,
    "received_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "payment_notifications_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "tasks" (
    "id" BIGSERIAL NOT NULL,
    "kind" TEXT NOT NULL,
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
