-- A refund of all orders of a sale, which the service works off in the background. An order's own status says whether it is done.
CREATE TABLE "sale_refunds" (
    "sale_id" INTEGER NOT NULL,
    -- Otherwise the units are taken from the stock.
    "return_units" BOOLEAN NOT NULL,
    "actor" TEXT NOT NULL,
    -- Orders that were active when it was requested.
    "orders" INTEGER NOT NULL,
    -- Later orders stay.
    "requested_at" TIMESTAMPTZ(3) NOT NULL DEFAULT clock_timestamp(),
    "finished_at" TIMESTAMPTZ(3),

    CONSTRAINT "sale_refunds_pkey" PRIMARY KEY ("sale_id"),
    CONSTRAINT "sale_refunds_sale_id_fkey" FOREIGN KEY ("sale_id") REFERENCES "sales"("id") ON DELETE RESTRICT ON UPDATE RESTRICT
);

CREATE INDEX "sale_refunds_running_idx" ON "sale_refunds"("requested_at") WHERE "finished_at" IS NULL;

-- A release without units frees the customer only.
ALTER TABLE "mirror_outbox" DROP CONSTRAINT "mirror_outbox_units_positive";
ALTER TABLE "mirror_outbox" ADD CONSTRAINT "mirror_outbox_units_not_negative" CHECK ("units" >= 0);
