-- Each sold unit leaves a dead row. By the default share of the table, a sale of a million units would have 200,000 before a vacuum.
ALTER TABLE "stock_units" SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
