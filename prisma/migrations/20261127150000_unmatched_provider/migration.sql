-- Whose id the notification of an unmatched payment has, as in "payment_notifications": a repeat is found, and the row deleted, also after
-- the secret got a name or lost it.
ALTER TABLE "unmatched_payments" ADD COLUMN "provider" TEXT;
CREATE INDEX "unmatched_payments_order_id_idx" ON "unmatched_payments" ("order_id");
