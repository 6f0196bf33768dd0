-- Several units in an order, and what an administrator may change while a sale runs. Processes of earlier versions sell one unit an
-- order and do not see a pause: upgrade all of them before "max_per_order" or "paused" changes.
ALTER TABLE "sales"
    -- The most units of an order.
    ADD COLUMN "max_per_order" INTEGER NOT NULL DEFAULT 1,
    -- A paused sale does not sell.
    ADD COLUMN "paused" BOOLEAN NOT NULL DEFAULT false,
    -- How long its orders may stay unpaid, in seconds; null: as PAYMENT_WINDOW_S says.
    ADD COLUMN "payment_window_s" INTEGER,
    ADD CONSTRAINT "sales_max_per_order_bounded" CHECK ("max_per_order" BETWEEN 1 AND 100),
    ADD CONSTRAINT "sales_payment_window_positive" CHECK ("payment_window_s" > 0),
    -- The amount of an order fits in an integer.
    ADD CONSTRAINT "sales_amount_bounded" CHECK ("price_cents"::bigint * "max_per_order" <= 2147483647);

-- "price_cents" is the price of one unit; the customer owes price × quantity.
ALTER TABLE "orders"
    ADD COLUMN "quantity" INTEGER NOT NULL DEFAULT 1,
    ADD CONSTRAINT "orders_quantity_bounded" CHECK ("quantity" BETWEEN 1 AND 100);

-- An order has as many rows as units.
DROP INDEX "stock_units_order_id_key";
CREATE INDEX "stock_units_order_id_idx" ON "stock_units" ("order_id") WHERE "order_id" IS NOT NULL;

-- Orders of different quantities, first come first served: "units_taken" runs over them in their order, and is the units taken so far.
-- An order that does not fit in what is left takes none, so that it does not stop those behind it.
CREATE FUNCTION take_if_they_fit(taken integer, quantity integer, free integer) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN taken + CASE WHEN quantity <= free - taken THEN quantity ELSE 0 END;
CREATE AGGREGATE units_taken(quantity integer, free integer) (SFUNC = take_if_they_fit, STYPE = integer, INITCOND = '0');

-- Returns 1 unless the sale is paused, and raises an error otherwise, which rolls the statement back. Used as before_deadline() is, by
-- statements that take a unit before they lock the sale.
CREATE FUNCTION unless_paused(paused boolean) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF paused THEN
    RAISE EXCEPTION 'the sale was paused meanwhile' USING ERRCODE = 'ST003';
  END IF;
  RETURN 1;
END
$$;
