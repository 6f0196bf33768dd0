-- The event of an order whose deadline was extended: nothing else changes the deadline of an order whose status stays.
CREATE OR REPLACE FUNCTION add_order_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  event text := 'order.' || CASE TG_OP WHEN 'INSERT' THEN 'placed' ELSE NEW.status END;
  contents jsonb := jsonb_build_object('orderId', NEW.id, 'saleId', NEW.sale_id, 'userId', NEW.user_id,
    'status', NEW.status, 'quantity', NEW.quantity, 'amountCents', NEW.price_cents * NEW.quantity);
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.status = NEW.status THEN
    IF OLD.expires_at = NEW.expires_at THEN
      RETURN NULL;
    END IF;
    event := 'order.extended';
    contents := contents || jsonb_build_object('expiresAt', to_char(NEW.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'));
  END IF;
  IF has_event(event) THEN
    PERFORM add_event(event, 'order ' || NEW.id, contents::json);
  END IF;
  RETURN NULL;
END
$$;
