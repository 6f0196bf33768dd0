-- Those who cannot be served now hide no one behind them, however many they are, and one statement names or serves some hundreds at most: the
-- next call goes on.
CREATE INDEX "waitlist_waiting_by_quantity_idx" ON "waitlist"("sale_id", "quantity", "id") WHERE "named_at" IS NULL;

-- The first who wait for no more than `most` units and who may have them by the limits of the sale, and those with an order, who are to leave
-- the list: a hundred more than there are units.
CREATE FUNCTION first_waiting(sale sales, most integer)
RETURNS TABLE (id bigint, user_id text, quantity integer, has_order boolean) LANGUAGE sql STABLE AS $$
  SELECT next.* FROM generate_series(1, least(most, sale.max_per_order)) AS units, LATERAL (
    SELECT w.id, w.user_id, w.quantity, o.has_order FROM waitlist AS w, LATERAL (SELECT EXISTS (
        SELECT FROM orders AS o WHERE o.sale_id = sale.id AND o.user_id = w.user_id AND o.status IN ('pending', 'paid')
      ) AS has_order OFFSET 0) AS o
    WHERE w.sale_id = sale.id AND w.quantity = units AND w.named_at IS NULL AND (o.has_order OR sale.limit_group IS NULL OR NOT EXISTS (
        SELECT FROM customer_units AS c WHERE c.limit_group = sale.limit_group AND c.user_id = w.user_id
          AND c.units + w.quantity > sale.max_per_customer))
    ORDER BY w.id LIMIT most::bigint + 100
  ) AS next ORDER BY next.id LIMIT most::bigint + 100
$$;

-- Names the next customers of a sale, whose row is locked, for at most `most` units. A customer of more units than these keeps the place, and
-- the next ones are named. Those with an order leave the list unnamed.
CREATE OR REPLACE FUNCTION name_waiting(sale integer, most integer) RETURNS text[] LANGUAGE sql AS $$
  WITH first AS (
    SELECT first.* FROM sales AS s, first_waiting(s, least(most, 1000)) AS first WHERE s.id = sale
  ), next AS (
    SELECT id, user_id FROM (
      SELECT id, user_id, sum(quantity) OVER (ORDER BY id) AS units FROM first WHERE NOT has_order
    ) AS fitting WHERE units <= most
  ), marked AS (
    UPDATE waitlist AS w SET named_at = clock_timestamp() FROM first
    WHERE w.sale_id = sale AND w.id = first.id AND (first.has_order OR EXISTS (SELECT FROM next WHERE next.id = first.id))
  )
  SELECT coalesce(array_agg(user_id ORDER BY id), '{}') FROM next
$$;

-- Places orders of waiting customers of a sale, whose row is locked, for at most `most` units: the first ones first, of those who wait for no
-- more than are left. Customers with an order leave the list. A customer whose purchase is in progress may hold the entry in the unique index
-- and wait for the sale: the timeout ends the wait for that one, who keeps the place, like a customer who meanwhile reached the limit of
-- the sale's group. Customers may leave during such a wait: each entry is locked before its order is placed, and one that is gone gets none. Returns
-- how many units are left.
CREATE OR REPLACE FUNCTION offer_units(about integer, most integer) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
  sale sales;
  next record;
  placed orders;
  left_over integer := most;
BEGIN
  SELECT * INTO sale FROM sales WHERE id = about;
  FOR next IN SELECT * FROM first_waiting(sale, least(most, 500)) LOOP
    EXIT WHEN left_over = 0;
    CONTINUE WHEN NOT next.has_order AND next.quantity > left_over;
    BEGIN
      UPDATE waitlist SET named_at = clock_timestamp() WHERE id = next.id;
      CONTINUE WHEN NOT FOUND OR next.has_order;
      INSERT INTO orders (id, sale_id, user_id, quantity, status, price_cents, expires_at, limit_group)
      VALUES (new_order_id(about), about, next.user_id, next.quantity, 'pending', sale.price_cents,
        clock_timestamp() + make_interval(secs => sale.waitlist_hold_s), sale.limit_group) RETURNING * INTO placed;
    EXCEPTION WHEN unique_violation OR lock_not_available OR SQLSTATE 'ST004' THEN
      CONTINUE;
    END;
    INSERT INTO points_entries (user_id, source_type, source_id, points)
      VALUES (placed.user_id, 'order', placed.id::text, points_earned(placed.price_cents * placed.quantity));
    UPDATE stock_units AS s SET order_id = placed.id FROM (
      SELECT unit FROM stock_units WHERE sale_id = about AND order_id IS NULL ORDER BY unit LIMIT placed.quantity FOR UPDATE SKIP LOCKED
    ) AS free WHERE s.sale_id = about AND s.unit = free.unit;
    left_over := left_over - placed.quantity;
    IF has_event('order.offered') THEN
      PERFORM add_event('order.offered', 'order ' || placed.id, json_build_object('orderId', placed.id, 'saleId', about,
        'userId', placed.user_id, 'status', placed.status, 'quantity', placed.quantity, 'amountCents', placed.price_cents * placed.quantity,
        'expiresAt', to_char(placed.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')));
    END IF;
  END LOOP;
  IF left_over < most THEN
    UPDATE sales SET sold = sold + most - left_over, version = version + 1 WHERE id = about;
  END IF;
  RETURN left_over;
END
$$;
