-- Units of one customer over a set of sales. Processes of earlier versions insert orders without their group, which are not counted:
-- upgrade all of them before a sale gets a "limit_group".
ALTER TABLE "sales"
    ADD COLUMN "limit_group" TEXT,
    ADD COLUMN "max_per_customer" INTEGER;

-- A trigger for the same reason as `check_terms`. A sale keeps its group while it has active orders, which are counted in it.
CREATE FUNCTION check_customer_limit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  violated text := CASE
    WHEN (NEW.limit_group IS NULL) <> (NEW.max_per_customer IS NULL) OR NEW.max_per_customer < 1 THEN 'sales_limit_complete'
    WHEN TG_OP = 'UPDATE' AND NEW.limit_group IS DISTINCT FROM OLD.limit_group AND NEW.sold + NEW.oversold > 0 THEN 'sales_group_fixed'
  END;
BEGIN
  IF violated IS NOT NULL THEN
    RAISE EXCEPTION 'new row for relation "sales" violates constraint "%"', violated
      USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = violated;
  END IF;
  RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER sales_customer_limit AFTER INSERT OR UPDATE OF limit_group, max_per_customer ON "sales"
    FOR EACH ROW EXECUTE FUNCTION check_customer_limit();

-- That of its sale when it was inserted. It never changes: an order that is revived is counted in its own.
ALTER TABLE "orders" ADD COLUMN "limit_group" TEXT;

-- Units of a customer's active orders in all sales of a group. Purchases in two of these sales are serialised by this row.
CREATE TABLE "customer_units" (
    "limit_group" TEXT NOT NULL,
    "user_id" TEXT NOT NULL,
    "units" INTEGER NOT NULL,

    CONSTRAINT "customer_units_pkey" PRIMARY KEY ("limit_group", "user_id"),
    CONSTRAINT "customer_units_not_negative" CHECK ("units" >= 0)
);

-- Counts in the transaction of any statement that inserts, closes or revives orders, or gives one to another customer. Raises ST004 when
-- the customer would have more units than the sale of the order allows.
CREATE FUNCTION count_customer_units() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  held integer;
  most integer;
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.limit_group IS NOT NULL AND OLD.status IN ('pending', 'paid') THEN
    IF NEW.status IN ('pending', 'paid') AND (NEW.limit_group, NEW.user_id, NEW.quantity) = (OLD.limit_group, OLD.user_id, OLD.quantity) THEN
      RETURN NULL;
    END IF;
    UPDATE customer_units SET units = units - OLD.quantity WHERE limit_group = OLD.limit_group AND user_id = OLD.user_id;
    DELETE FROM customer_units WHERE limit_group = OLD.limit_group AND user_id = OLD.user_id AND units = 0;
  END IF;
  IF NEW.limit_group IS NOT NULL AND NEW.status IN ('pending', 'paid') THEN
    INSERT INTO customer_units AS c (limit_group, user_id, units) VALUES (NEW.limit_group, NEW.user_id, NEW.quantity)
      ON CONFLICT (limit_group, user_id) DO UPDATE SET units = c.units + excluded.units RETURNING units INTO held;
    -- After that row is locked: the limit is the newest one.
    SELECT max_per_customer INTO most FROM sales WHERE id = NEW.sale_id;
    IF held > most THEN
      RAISE EXCEPTION 'customer % would have % units in the sales of %, of at most %', NEW.user_id, held, NEW.limit_group, most
        USING ERRCODE = 'ST004';
    END IF;
  END IF;
  RETURN NULL;
END
$$;

-- An order without a group costs the evaluation of the condition.
CREATE TRIGGER order_counted AFTER INSERT ON "orders" FOR EACH ROW
    WHEN (NEW.limit_group IS NOT NULL) EXECUTE FUNCTION count_customer_units();
CREATE TRIGGER order_recounted AFTER UPDATE ON "orders" FOR EACH ROW
    WHEN (OLD.limit_group IS NOT NULL OR NEW.limit_group IS NOT NULL) EXECUTE FUNCTION count_customer_units();

-- Returns 1 if the group that an order was inserted with is still that of its sale, and raises an error otherwise, as unless_paused() does:
-- used by statements that read the sale before they lock it.
CREATE FUNCTION in_limit_group(now text, inserted text) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF now IS DISTINCT FROM inserted THEN
    RAISE EXCEPTION 'the limit group of the sale was changed meanwhile' USING ERRCODE = 'ST003';
  END IF;
  RETURN 1;
END
$$;
