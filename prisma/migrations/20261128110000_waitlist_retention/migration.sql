-- Retention finds the oldest rows, and deletes them by their number: see src/store/postgres/retention.ts.
CREATE INDEX "waitlist_joined_at_idx" ON "waitlist"("joined_at");
CREATE UNIQUE INDEX "waitlist_id_key" ON "waitlist"("id");
