-- Notifications are deleted with their order: no search by their age. See src/store/postgres/retention.ts.
DROP INDEX "payment_notifications_received_at_idx";
