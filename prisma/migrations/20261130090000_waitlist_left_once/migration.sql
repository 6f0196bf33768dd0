-- A UUIDv7 whose last four bytes are the number of the sale, as the service makes them: 48 bits of the time in ms, the version, random bits.
CREATE FUNCTION new_order_id(sale integer) RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT encode(overlay(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1)
    PLACING int4send(sale) FROM 13 FOR 4), 'hex')::uuid
$$;
DROP FUNCTION new_order_id();

-- Places orders of waiting customers of a sale, whose row is locked, for at most `most` units: the first ones first, of those who wait for no
-- more than are left. Customers with an order leave the list. A customer whose purchase is in progress may hold the entry in the unique index
-- and wait for the sale: the timeout ends the wait for that one, who keeps the place, as one at the limit of the sale's group does. Customers
-- may leave during such a wait: each entry is locked before its order is placed, and one that is gone gets none. Returns how many units are
-- left.
CREATE OR REPLACE FUNCTION offer_units(about integer, most integer) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
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
        UPDATE waitlist SET named_at = clock_timestamp() WHERE id = next.id;
        CONTINUE WHEN NOT FOUND;
        INSERT INTO orders (id, sale_id, user_id, quantity, status, price_cents, expires_at, limit_group)
        VALUES (new_order_id(about), about, next.user_id, next.quantity, 'pending', sale.price_cents,
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
    ELSE
      UPDATE waitlist SET named_at = clock_timestamp() WHERE id = next.id;
    END IF;
  END LOOP;
  RETURN left_over;
END
$$;
