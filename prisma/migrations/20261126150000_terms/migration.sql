-- The bounds of a sale's terms are checked only by statements that write a term. Postgres parses the CHECKs of a row anew for each
-- statement that writes the row, whichever columns it writes: these six cost every order of a strategy that counts one by one about a
-- tenth of Postgres's work. The trigger runs after the row is written: one before it would lock the row a second time.
ALTER TABLE "sales"
    DROP CONSTRAINT "sales_price_not_negative",
    DROP CONSTRAINT "sales_window_in_order",
    DROP CONSTRAINT "sales_spread_bounded",
    DROP CONSTRAINT "sales_max_per_order_bounded",
    DROP CONSTRAINT "sales_payment_window_positive",
    DROP CONSTRAINT "sales_amount_bounded";

-- Fails as a CHECK of that name does.
CREATE FUNCTION check_terms() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  violated text := CASE
    WHEN NEW.price_cents < 0 THEN 'sales_price_not_negative'
    WHEN NEW.starts_at >= NEW.ends_at THEN 'sales_window_in_order'
    WHEN NEW.spread_s NOT BETWEEN 0 AND 3600 THEN 'sales_spread_bounded'
    WHEN NEW.max_per_order NOT BETWEEN 1 AND 100 THEN 'sales_max_per_order_bounded'
    WHEN NEW.payment_window_s <= 0 THEN 'sales_payment_window_positive'
    WHEN NEW.price_cents::bigint * NEW.max_per_order > 2147483647 THEN 'sales_amount_bounded'
  END;
BEGIN
  IF violated IS NOT NULL THEN
    RAISE EXCEPTION 'new row for relation "sales" violates constraint "%"', violated
      USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = violated;
  END IF;
  RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER sales_terms
    AFTER INSERT OR UPDATE OF price_cents, starts_at, ends_at, spread_s, max_per_order, payment_window_s ON "sales"
    FOR EACH ROW EXECUTE FUNCTION check_terms();
