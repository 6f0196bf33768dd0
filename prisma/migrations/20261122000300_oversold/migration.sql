-- Units sold beyond the stock. Only the strategy `unsafe` sells any; `sold` stays within the stock, and the active orders of
-- a sale are `sold` + `oversold`.
ALTER TABLE "sales" ADD COLUMN "oversold" INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "sales" ADD CONSTRAINT "sales_oversold_not_negative" CHECK ("oversold" >= 0);

-- Orders that were sold beyond the stock before this column counted them.
UPDATE "sales" SET "oversold" = active.orders - "sold"
FROM (
    SELECT "sale_id", count(*)::int AS orders FROM "orders" WHERE "status" IN ('pending', 'paid') GROUP BY "sale_id"
) AS active
WHERE "sales"."id" = active."sale_id" AND active.orders > "sales"."sold";
