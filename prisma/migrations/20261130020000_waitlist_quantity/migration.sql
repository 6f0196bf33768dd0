-- A customer waits for several units, and is named when as many are free. Waiting customers are named also where no event is published:
-- they see it in their entry.
ALTER TABLE "waitlist" ADD COLUMN "quantity" INTEGER NOT NULL DEFAULT 1
    CONSTRAINT "waitlist_quantity_in_range" CHECK ("quantity" BETWEEN 1 AND 100);

-- Names the next customers of a sale, whose row is locked, for at most `most` units. Who waits for more than these keeps the place, and the
-- next ones are named. Only the first are read, a hundred more than there are units: units return one by one, while the row is locked.
-- Those with an order leave the list unnamed.
CREATE OR REPLACE FUNCTION name_waiting(sale integer, most integer) RETURNS text[] LANGUAGE sql AS $$
  WITH first AS (
    SELECT id, user_id, quantity, EXISTS (
        SELECT FROM orders AS o WHERE o.sale_id = sale AND o.user_id = w.user_id AND o.status IN ('pending', 'paid')
      ) AS has_order
    FROM waitlist AS w WHERE sale_id = sale AND named_at IS NULL ORDER BY id LIMIT most::bigint + 100
  ), next AS (
    SELECT id, user_id FROM (
      SELECT id, user_id, sum(quantity) OVER (ORDER BY id) AS units FROM first WHERE NOT has_order AND quantity <= most
    ) AS fitting WHERE units <= most
  ), marked AS (
    UPDATE waitlist AS w SET named_at = clock_timestamp() FROM first
    WHERE w.sale_id = sale AND w.id = first.id AND (first.has_order OR EXISTS (SELECT FROM next WHERE next.id = first.id))
  )
  SELECT coalesce(array_agg(user_id ORDER BY id), '{}') FROM next
$$;

-- Free units of a sale beyond those that customers are to buy who were named less than `turn` ago and have no order; 0 when none can be
-- bought now.
CREATE OR REPLACE FUNCTION units_to_offer(sale sales, turn interval) RETURNS integer LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN sale.paused OR sale.starts_at > clock_timestamp() OR sale.ends_at <= clock_timestamp() THEN 0
    ELSE greatest(0, sale.stock - sale.sold - sale.oversold - (
      SELECT coalesce(sum(quantity), 0)::int FROM waitlist AS w WHERE w.sale_id = sale.id AND w.named_at > clock_timestamp() - turn
        AND NOT EXISTS (SELECT FROM orders AS o WHERE o.sale_id = sale.id AND o.user_id = w.user_id AND o.status IN ('pending', 'paid'))
    )) END
$$;

CREATE OR REPLACE FUNCTION name_next_waiting(about integer, turn interval) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  sale sales;
  named text[];
BEGIN
  SELECT * INTO sale FROM sales WHERE id = about FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  named := name_waiting(about, units_to_offer(sale, turn));
  IF named <> '{}' AND has_event('sale.units-returned') THEN
    PERFORM add_event('sale.units-returned', 'sale ' || about, json_build_object('saleId', about, 'stock', sale.stock, 'sold',
      sale.sold + sale.oversold, 'remaining', sale.stock - sale.sold - sale.oversold, 'paused', sale.paused, 'units', 0, 'waitlist', named));
  END IF;
  RETURN cardinality(named);
END
$$;
