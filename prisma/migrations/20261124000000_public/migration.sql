-- The lottery of a sale: turns are drawn in the first "spread_s" seconds. The seed is secret: whoever has it can predict them.
ALTER TABLE "sales"
    ADD COLUMN "spread_s" INTEGER NOT NULL DEFAULT 0,
    ADD COLUMN "lottery_seed" UUID NOT NULL DEFAULT gen_random_uuid(),
    ADD CONSTRAINT "sales_spread_bounded" CHECK ("spread_s" BETWEEN 0 AND 3600);

-- Administrative acts, payments, cancellations and refunds, written in the transaction that did them. A background pass appends
-- them to "audit_log": a chain of hashes needs one writer at a time, and payments must not wait for each other.
CREATE TABLE "audit_pending" (
    "id" BIGSERIAL NOT NULL,
    "at" TIMESTAMPTZ(3) NOT NULL DEFAULT clock_timestamp(),
    "actor" TEXT NOT NULL,
    "action" TEXT NOT NULL,
    "subject" TEXT NOT NULL,
    "details" TEXT NOT NULL,
    CONSTRAINT "audit_pending_pkey" PRIMARY KEY ("id")
);

-- Append-only. "hash" covers the row and the hash of the row before it, so that a changed or removed row breaks the chain.
-- "details" is JSON as text: jsonb would change what was hashed.
CREATE TABLE "audit_log" (
    "id" BIGINT NOT NULL,
    "at" TIMESTAMPTZ(3) NOT NULL,
    "actor" TEXT NOT NULL,
    "action" TEXT NOT NULL,
    "subject" TEXT NOT NULL,
    "details" TEXT NOT NULL,
    "previous_hash" BYTEA NOT NULL,
    "hash" BYTEA NOT NULL,
    CONSTRAINT "audit_log_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "audit_log_id_positive" CHECK ("id" > 0)
);

CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'audit_log is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER "audit_log_append_only" BEFORE UPDATE OR DELETE OR TRUNCATE ON "audit_log"
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only();
