-- The lock `postgres-row`. A row stays when its lock is given back: its fence must never begin again.
CREATE TABLE "lock_rows" (
    "resource" TEXT NOT NULL,
    "owner" TEXT NOT NULL,
    "fence" BIGINT NOT NULL,
    "expires_at" TIMESTAMPTZ NOT NULL,
    CONSTRAINT "lock_rows_pkey" PRIMARY KEY ("resource"),
    CONSTRAINT "lock_rows_fence_positive" CHECK ("fence" > 0)
)
-- Every lease, renewal and release rewrites its row; room on the page keeps that out of the index (HOT updates).
WITH (fillfactor = 50);
