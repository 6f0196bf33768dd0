-- A customer who is named and does not buy within a time no longer keeps the next from being named: the service calls
-- "name_next_waiting" for sales with more free units than such customers.
CREATE INDEX "waitlist_named_idx" ON "waitlist"("sale_id", "named_at") WHERE "named_at" IS NOT NULL;

-- Names the next customers of a sale, whose row is locked, at most `most`. Those with an order leave the list unnamed.
CREATE FUNCTION name_waiting(sale integer, most integer) RETURNS text[] LANGUAGE sql AS $$
  WITH next AS (
    SELECT id, user_id FROM waitlist AS w WHERE sale_id = sale AND named_at IS NULL
      AND NOT EXISTS (SELECT FROM orders AS o WHERE o.sale_id = sale AND o.user_id = w.user_id AND o.status IN ('pending', 'paid'))
    ORDER BY id LIMIT most
  ), last AS (
    SELECT CASE WHEN count(*) = most THEN max(id) ELSE 9223372036854775807 END AS id FROM next
  ), marked AS (
    UPDATE waitlist AS w SET named_at = clock_timestamp() FROM last
    WHERE w.sale_id = sale AND w.named_at IS NULL AND w.id <= last.id
  )
  SELECT coalesce(array_agg(user_id ORDER BY id), '{}') FROM next
$$;

-- Free units of a sale beyond the customers who were named less than `turn` ago and have no order; 0 when none can be bought now.
CREATE FUNCTION units_to_offer(sale sales, turn interval) RETURNS integer LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN sale.paused OR sale.starts_at > clock_timestamp() OR sale.ends_at <= clock_timestamp() THEN 0
    ELSE greatest(0, sale.stock - sale.sold - sale.oversold - (
      SELECT count(*)::int FROM waitlist AS w WHERE w.sale_id = sale.id AND w.named_at > clock_timestamp() - turn
        AND NOT EXISTS (SELECT FROM orders AS o WHERE o.sale_id = sale.id AND o.user_id = w.user_id AND o.status IN ('pending', 'paid'))
    )) END
$$;

-- Names the next customers for the units that no customer with time left is to buy. A locked sale is left to the next call.
CREATE FUNCTION name_next_waiting(about integer, turn interval) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  sale sales;
  named text[];
BEGIN
  SELECT * INTO sale FROM sales WHERE id = about FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  named := name_waiting(about, units_to_offer(sale, turn));
  IF named <> '{}' THEN
    PERFORM add_event('sale.units-returned', 'sale ' || about, json_build_object('saleId', about, 'stock', sale.stock, 'sold',
      sale.sold + sale.oversold, 'remaining', sale.stock - sale.sold - sale.oversold, 'paused', sale.paused, 'units', 0, 'waitlist', named));
  END IF;
  RETURN cardinality(named);
END
$$;

CREATE OR REPLACE FUNCTION add_sale_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  free integer := NEW.stock - NEW.sold - NEW.oversold;
  before integer := OLD.stock - OLD.sold - OLD.oversold;
  is_resumed boolean := OLD.paused AND NOT NEW.paused;
  returned integer := free - CASE WHEN is_resumed THEN 0 ELSE greatest(0, before) END;
  about text := 'sale ' || NEW.id;
  contents jsonb := jsonb_build_object('saleId', NEW.id, 'stock', NEW.stock, 'sold', NEW.sold + NEW.oversold, 'remaining', free,
    'paused', NEW.paused);
  named text[] := '{}';
BEGIN
  IF free <= 0 AND before > 0 AND has_event('sale.sold-out') THEN
    PERFORM add_event('sale.sold-out', about, contents::json);
  ELSIF returned > 0 AND has_event('sale.units-returned') THEN
    IF NOT NEW.paused AND (NEW.ends_at IS NULL OR NEW.ends_at > clock_timestamp()) THEN
      named := name_waiting(NEW.id, returned);
    END IF;
    IF NOT is_resumed OR named <> '{}' THEN
      PERFORM add_event('sale.units-returned', about, (contents || jsonb_build_object('units', returned, 'waitlist', named))::json);
    END IF;
  END IF;
  RETURN NULL;
END
$$;
