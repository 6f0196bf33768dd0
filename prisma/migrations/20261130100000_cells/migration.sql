-- Several Postgres over which the sales of a service are dealt (CELL_DATABASE_URLS). Each has one row here that says which it is; a Postgres
-- that is the only one has none.
CREATE TABLE "cell_identity" (
    -- The same in all of them.
    "directory" UUID NOT NULL,
    -- 0 is DATABASE_URL, whose Postgres has the directory.
    "cell" INTEGER NOT NULL,
    -- In cell 0: how many cells there are.
    "cells" INTEGER NOT NULL,

    CONSTRAINT "cell_identity_pkey" PRIMARY KEY ("directory")
);
CREATE UNIQUE INDEX "cell_identity_single" ON "cell_identity" ((true));

-- The directory, in cell 0: which cell has a sale. A row is committed before the sale, and never changes. A sale of cell 0 that was created
-- before there were others has none.
CREATE TABLE "sale_cells" (
    "sale_id" INTEGER NOT NULL,
    "cell" INTEGER NOT NULL,

    CONSTRAINT "sale_cells_pkey" PRIMARY KEY ("sale_id")
);
CREATE INDEX "sale_cells_cell_sale_id_idx" ON "sale_cells"("cell", "sale_id");

-- The same for groups of sales that limit their customers together: a limit is counted in one Postgres.
CREATE TABLE "group_cells" (
    "limit_group" TEXT NOT NULL,
    "cell" INTEGER NOT NULL,

    CONSTRAINT "group_cells_pkey" PRIMARY KEY ("limit_group")
);

-- Makes this Postgres a cell, with the rights of the owner of the sequences. Ids that each cell draws by itself get the range of their cell, so
-- that they differ between cells: those of cell 1 from 2^44 on, of cell 2 from 2 × 2^44. All stay below 2^53.
CREATE FUNCTION become_cell("given" UUID, "number" INTEGER) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO cell_identity (directory, cell, cells) VALUES ("given", "number", 1);
  PERFORM setval(pg_get_serial_sequence(name, 'id'), "number"::bigint << 44)
  FROM unnest(ARRAY['tasks', 'points_entries', 'unmatched_payments']) AS name WHERE "number" > 0;
END $$;
-- Temporary tables of a caller come last.
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION become_cell(UUID, INTEGER) SET search_path = %I, pg_temp', current_schema());
END $$;
