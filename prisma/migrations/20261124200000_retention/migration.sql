-- For the search for old rows (RETENTION_DAYS). Done tasks are found by "tasks_state_run_at_idx".
-- IF NOT EXISTS: for a while the migration before this one created them as well.
CREATE INDEX IF NOT EXISTS "orders_closed_at_idx" ON "orders" ("closed_at") WHERE "status" IN ('cancelled', 'expired');
CREATE INDEX IF NOT EXISTS "payment_notifications_received_at_idx" ON "payment_notifications" ("received_at");

-- The first databases numbered the epochs from 1. A random number is not taken for that of another database: see "init".
ALTER TABLE "redis_epochs" ALTER COLUMN "epoch" SET DEFAULT (1 + floor(random() * 2147483646))::int;
DROP SEQUENCE IF EXISTS "redis_epochs_epoch_seq";
