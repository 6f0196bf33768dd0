-- A waitlist that holds units: one that returns becomes a pending order of the next customer, in the same transaction, so that no
-- other can buy it. Processes of earlier versions offer such units to all: upgrade all of them before "waitlist" changes.
ALTER TABLE "sales"
    -- 'notify' or 'hold'.
    ADD COLUMN "waitlist" TEXT NOT NULL DEFAULT 'notify',
    -- How long such an order may stay unpaid, in seconds. Of a sale that holds it is never null.
    ADD COLUMN "waitlist_hold_s" INTEGER;

-- A UUIDv7: 48 bits of the time in ms, the version, and random bits.
CREATE FUNCTION new_order_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- Whether its returned units become orders. A transaction of a strategy that decides in Redis says that it does not: the unit would seem to be
-- free there for a moment.
CREATE FUNCTION holds_units(sale sales) RETURNS boolean LANGUAGE sql STABLE
    RETURN (sale).waitlist = 'hold' AND coalesce(current_setting('stampede.mirrored', true), '') <> 'on';

-- Places orders of waiting customers of a sale, whose row is locked, for at most `most` units: the first ones first, of those who wait for no
-- more than are left. Customers with an order leave the list. A customer whose purchase is in progress may hold the entry in the unique index
-- and wait for the sale: the timeout ends the wait for that one, who keeps the place, as one at the limit of the
-- sale's group does. Returns how many units are left.
CREATE FUNCTION offer_units(about integer, most integer) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
  sale sales;
  next record;
  placed orders;
  left_over integer := most;
BEGIN
  SELECT * INTO sale FROM sales WHERE id = about;
  FOR next IN
    SELECT id, user_id, quantity, EXISTS (
        SELECT FROM orders AS o WHERE o.sale_id = about AND o.user_id = w.user_id AND o.status IN ('pending', 'paid')
      ) AS has_order
    FROM waitlist AS w WHERE sale_id = about AND named_at IS NULL ORDER BY id LIMIT most::bigint + 100
  LOOP
    EXIT WHEN left_over = 0;
    CONTINUE WHEN NOT next.has_order AND next.quantity > least(left_over, sale.max_per_order);
    IF NOT next.has_order THEN
      BEGIN
        INSERT INTO orders (id, sale_id, user_id, quantity, status, price_cents, expires_at, limit_group)
        VALUES (new_order_id(), about, next.user_id, next.quantity, 'pending', sale.price_cents,
          clock_timestamp() + make_interval(secs => sale.waitlist_hold_s), sale.limit_group) RETURNING * INTO placed;
      EXCEPTION WHEN unique_violation OR lock_not_available OR SQLSTATE 'ST004' THEN
        CONTINUE;
      END;
      INSERT INTO points_entries (user_id, source_type, source_id, points)
        VALUES (placed.user_id, 'order', placed.id::text, points_earned(placed.price_cents * placed.quantity));
      UPDATE sales SET sold = sold + placed.quantity, version = version + 1 WHERE id = about;
      UPDATE stock_units AS s SET order_id = placed.id FROM (
        SELECT unit FROM stock_units WHERE sale_id = about AND order_id IS NULL ORDER BY unit LIMIT placed.quantity FOR UPDATE SKIP LOCKED
      ) AS free WHERE s.sale_id = about AND s.unit = free.unit;
      left_over := left_over - placed.quantity;
      IF has_event('order.offered') THEN
        PERFORM add_event('order.offered', 'order ' || placed.id, json_build_object('orderId', placed.id, 'saleId', about,
          'userId', placed.user_id, 'status', placed.status, 'quantity', placed.quantity, 'amountCents', placed.price_cents * placed.quantity,
          'expiresAt', to_char(placed.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')));
      END IF;
    END IF;
    UPDATE waitlist SET named_at = clock_timestamp() WHERE id = next.id;
  END LOOP;
  RETURN left_over;
END
$$;

-- Names the next customers for the units that no customer with time left is to buy, or places their orders. A locked sale is left to the next
-- call.
CREATE OR REPLACE FUNCTION name_next_waiting(about integer, turn interval) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  sale sales;
  offered integer;
  named text[];
BEGIN
  SELECT * INTO sale FROM sales WHERE id = about FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  IF holds_units(sale) THEN
    offered := units_to_offer(sale, interval '0');
    RETURN offered - offer_units(about, offered);
  END IF;
  named := name_waiting(about, units_to_offer(sale, turn));
  IF named <> '{}' AND has_event('sale.units-returned') THEN
    PERFORM add_event('sale.units-returned', 'sale ' || about, json_build_object('saleId', about, 'stock', sale.stock, 'sold',
      sale.sold + sale.oversold, 'remaining', sale.stock - sale.sold - sale.oversold, 'paused', sale.paused, 'units', 0, 'waitlist', named));
  END IF;
  RETURN cardinality(named);
END
$$;

-- Units that became orders were never free: the events are those of what is left.
CREATE OR REPLACE FUNCTION add_sale_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  free integer := NEW.stock - NEW.sold - NEW.oversold;
  before integer := OLD.stock - OLD.sold - OLD.oversold;
  is_resumed boolean := OLD.paused AND NOT NEW.paused;
  returned integer := free - CASE WHEN is_resumed THEN 0 ELSE greatest(0, before) END;
  about text := 'sale ' || NEW.id;
  contents jsonb;
  offered integer;
  named text[] := '{}';
BEGIN
  IF pg_trigger_depth() > 1 THEN
    RETURN NULL; -- an order of the waitlist
  END IF;
  IF returned > 0 AND holds_units(NEW) THEN
    offered := units_to_offer(NEW, interval '0');
    free := free - offered + offer_units(NEW.id, offered);
    returned := free - greatest(0, before);
  END IF;
  contents := jsonb_build_object('saleId', NEW.id, 'stock', NEW.stock, 'sold', NEW.stock - free, 'remaining', free, 'paused', NEW.paused);
  IF free <= 0 AND before > 0 AND has_event('sale.sold-out') THEN
    PERFORM add_event('sale.sold-out', about, contents::json);
  ELSIF returned > 0 AND has_event('sale.units-returned') THEN
    IF NOT holds_units(NEW) AND NOT NEW.paused AND (NEW.ends_at IS NULL OR NEW.ends_at > clock_timestamp()) THEN
      named := name_waiting(NEW.id, returned);
    END IF;
    IF NOT is_resumed OR named <> '{}' THEN
      PERFORM add_event('sale.units-returned', about, (contents || jsonb_build_object('units', returned, 'waitlist', named))::json);
    END IF;
  END IF;
  RETURN NULL;
END
$$;

DROP TRIGGER sale_units_changed ON "sales";
CREATE TRIGGER sale_units_changed AFTER UPDATE ON "sales" FOR EACH ROW
    WHEN (coalesce(current_setting('stampede.events', true), '') <> '' OR NEW.waitlist = 'hold') EXECUTE FUNCTION add_sale_event();
