-- Events for other systems. They are tasks, written in the transaction of the change that they report, whichever statement made it. A
-- connection chooses the types of its changes with the setting "stampede.events", a list with commas; without it, none is written.
-- The triggers name no column, so that the type of each can be changed.
ALTER TABLE "tasks"
    -- What the task is about. One of a subject is claimed when the earlier ones are done. Null: at any time.
    ADD COLUMN "subject" TEXT;
CREATE INDEX "tasks_subject_open_idx" ON "tasks"("subject", "id") WHERE "subject" IS NOT NULL AND "state" <> 'done';

-- Customers who wait for units of a sold-out sale, in the order of "id".
CREATE TABLE "waitlist" (
    "id" BIGSERIAL NOT NULL,
    "sale_id" INTEGER NOT NULL,
    "user_id" TEXT NOT NULL,
    "joined_at" TIMESTAMPTZ(3) NOT NULL DEFAULT clock_timestamp(),
    -- When an event named the customer.
    "named_at" TIMESTAMPTZ(3),

    CONSTRAINT "waitlist_pkey" PRIMARY KEY ("sale_id", "user_id"),
    CONSTRAINT "waitlist_sale_id_fkey" FOREIGN KEY ("sale_id") REFERENCES "sales"("id") ON DELETE RESTRICT ON UPDATE RESTRICT
);
CREATE INDEX "waitlist_waiting_idx" ON "waitlist"("sale_id", "id") WHERE "named_at" IS NULL;

CREATE FUNCTION has_event(event text) RETURNS boolean LANGUAGE sql STABLE
    RETURN event = ANY (string_to_array(current_setting('stampede.events', true), ','));

CREATE FUNCTION add_event(event text, about text, contents json) RETURNS void LANGUAGE sql
    BEGIN ATOMIC
      INSERT INTO tasks (kind, subject, payload) VALUES ('event', about, json_build_object('type', event,
        'timestamp', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'data', contents));
    END;

CREATE FUNCTION add_order_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  event text := 'order.' || CASE TG_OP WHEN 'INSERT' THEN 'placed' ELSE NEW.status END;
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.status = NEW.status THEN
    RETURN NULL;
  END IF;
  IF has_event(event) THEN
    PERFORM add_event(event, 'order ' || NEW.id, json_build_object('orderId', NEW.id, 'saleId', NEW.sale_id, 'userId', NEW.user_id,
      'status', NEW.status, 'quantity', NEW.quantity, 'amountCents', NEW.price_cents * NEW.quantity));
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER order_placed AFTER INSERT ON "orders" FOR EACH ROW
    WHEN (coalesce(current_setting('stampede.events', true), '') <> '') EXECUTE FUNCTION add_order_event();
CREATE TRIGGER order_changed AFTER UPDATE ON "orders" FOR EACH ROW
    WHEN (coalesce(current_setting('stampede.events', true), '') <> '') EXECUTE FUNCTION add_order_event();

-- Names as many customers who wait as units became free. The row of the sale is locked, so no two changes name the same ones.
CREATE FUNCTION add_sale_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  free integer := NEW.stock - NEW.sold - NEW.oversold;
  before integer := OLD.stock - OLD.sold - OLD.oversold;
  returned integer := free - greatest(0, before);
  about text := 'sale ' || NEW.id;
  contents jsonb := jsonb_build_object('saleId', NEW.id, 'stock', NEW.stock, 'sold', NEW.sold + NEW.oversold, 'remaining', free,
    'paused', NEW.paused);
  named text[] := '{}';
BEGIN
  IF free <= 0 AND before > 0 AND has_event('sale.sold-out') THEN
    PERFORM add_event('sale.sold-out', about, contents::json);
  ELSIF returned > 0 AND has_event('sale.units-returned') THEN
    IF NEW.ends_at IS NULL OR NEW.ends_at > clock_timestamp() THEN
      WITH next AS (
        SELECT id, user_id FROM waitlist WHERE sale_id = NEW.id AND named_at IS NULL ORDER BY id LIMIT returned
      ), marked AS (
        UPDATE waitlist AS w SET named_at = clock_timestamp() FROM next WHERE w.sale_id = NEW.id AND w.user_id = next.user_id
      )
      SELECT coalesce(array_agg(user_id ORDER BY id), '{}') INTO named FROM next;
    END IF;
    PERFORM add_event('sale.units-returned', about, (contents || jsonb_build_object('units', returned, 'waitlist', named))::json);
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER sale_units_changed AFTER UPDATE ON "sales" FOR EACH ROW
    WHEN (coalesce(current_setting('stampede.events', true), '') <> '') EXECUTE FUNCTION add_sale_event();
