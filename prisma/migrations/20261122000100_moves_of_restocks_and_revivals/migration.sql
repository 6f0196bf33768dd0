-- Units that an operator added in Postgres and Redis has not heard of yet. Written in the statement that adds them; deleted
-- once Redis has them.
CREATE TABLE "restock_moves" (
    "id" BIGSERIAL NOT NULL,
    "sale_id" INTEGER NOT NULL,
    "units" INTEGER NOT NULL,
    "created_at" TIMESTAMPTZ(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "restock_moves_pkey" PRIMARY KEY ("id")
);

-- 'taken': as 'out', of a unit that was taken off in Redis beforehand.
ALTER TABLE "unit_moves" DROP CONSTRAINT "unit_moves_direction_known";
ALTER TABLE "unit_moves" ADD CONSTRAINT "unit_moves_direction_known"
    CHECK ("direction" IN ('back', 'out', 'taken'));
