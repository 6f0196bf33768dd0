-- A customer with an order when units return is not named, and leaves the list like those who are: at its head, each such customer
-- was read again with every unit that returned, while the sale's row was locked.
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
      WITH next AS (
        SELECT id, user_id FROM waitlist AS w WHERE sale_id = NEW.id AND named_at IS NULL
          AND NOT EXISTS (SELECT FROM orders AS o WHERE o.sale_id = NEW.id AND o.user_id = w.user_id AND o.status IN ('pending', 'paid'))
        ORDER BY id LIMIT returned
      ), last AS (
        SELECT CASE WHEN count(*) = returned THEN max(id) ELSE 9223372036854775807 END AS id FROM next
      ), marked AS (
        UPDATE waitlist AS w SET named_at = clock_timestamp() FROM last
        WHERE w.sale_id = NEW.id AND w.named_at IS NULL AND w.id <= last.id
      )
      SELECT coalesce(array_agg(user_id ORDER BY id), '{}') INTO named FROM next;
    END IF;
    IF NOT is_resumed OR named <> '{}' THEN
      PERFORM add_event('sale.units-returned', about, (contents || jsonb_build_object('units', returned, 'waitlist', named))::json);
    END IF;
  END IF;
  RETURN NULL;
END
$$;
