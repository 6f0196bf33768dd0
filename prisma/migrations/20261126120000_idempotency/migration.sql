-- What an administrator's request with an Idempotency-Key did, written in the transaction that did it. A repeat within 24 hours is
-- answered from here.
CREATE TABLE "idempotency_keys" (
    -- The administrator and the key.
    "id" TEXT NOT NULL,
    -- SHA-256 of the route and the body.
    "request" TEXT NOT NULL,
    -- Null only within that transaction.
    "answer" JSON,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "idempotency_keys_pkey" PRIMARY KEY ("id")
);

CREATE INDEX "idempotency_keys_created_at_idx" ON "idempotency_keys"("created_at");
