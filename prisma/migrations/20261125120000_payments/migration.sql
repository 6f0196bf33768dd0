-- Another payment of an order is owed back, so a repeat must not look like one. The provider of a notification: empty when its secret
-- has no name, null when it was received by an earlier version.
ALTER TABLE "payment_notifications" ADD COLUMN "provider" TEXT;
-- The notifications of an order: whether a payment is its first one, and whether the order of an old one still exists.
CREATE INDEX "payment_notifications_order_id_idx" ON "payment_notifications" ("order_id");
-- Payments that changed no order. No foreign key to "orders": most name an order that does not exist.
CREATE TABLE "unmatched_payments" (
    "id" BIGSERIAL NOT NULL,
    "notification_id" TEXT NOT NULL,
    "order_id" UUID NOT NULL,
    "amount_cents" INTEGER NOT NULL,
    "reason" TEXT NOT NULL,
    "actor" TEXT NOT NULL,
    "times" INTEGER NOT NULL DEFAULT 1,
    "received_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "repeated_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "unmatched_payments_pkey" PRIMARY KEY ("id")
);
CREATE UNIQUE INDEX "unmatched_payments_one_per_payment" ON "unmatched_payments" ("notification_id", "order_id", "amount_cents");
