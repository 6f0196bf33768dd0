-- An order that an administrator passed to another customer: the one who placed it. Null: it was not; an order passes once.
ALTER TABLE "orders" ADD COLUMN "transferred_from" TEXT;

-- The outbox towards Redis: 'transfer' passes an order from "user_id" to "to_user_id". Its units stay taken.
ALTER TABLE "mirror_outbox" ADD COLUMN "to_user_id" TEXT,
    DROP CONSTRAINT "mirror_outbox_change_known",
    ADD CONSTRAINT "mirror_outbox_change_known" CHECK ("change" IN ('release', 'take', 'record', 'restock', 'transfer')),
    ADD CONSTRAINT "mirror_outbox_receiver_named" CHECK (("change" = 'transfer') = ("to_user_id" IS NOT NULL));

-- The event of an order that has another customer.
CREATE OR REPLACE FUNCTION add_order_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  event text := 'order.' || CASE TG_OP WHEN 'INSERT' THEN 'placed' ELSE NEW.status END;
  contents jsonb := jsonb_build_object('orderId', NEW.id, 'saleId', NEW.sale_id, 'userId', NEW.user_id,
    'status', NEW.status, 'quantity', NEW.quantity, 'amountCents', NEW.price_cents * NEW.quantity);
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.status = NEW.status THEN
    IF OLD.user_id <> NEW.user_id THEN
      event := 'order.transferred';
      contents := contents || jsonb_build_object('fromUserId', OLD.user_id);
    ELSIF OLD.expires_at <> NEW.expires_at THEN
      event := 'order.extended';
      contents := contents || jsonb_build_object('expiresAt', to_char(NEW.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'));
    ELSE
      RETURN NULL;
    END IF;
  END IF;
  IF has_event(event) THEN
    PERFORM add_event(event, 'order ' || NEW.id, contents::json);
  END IF;
  RETURN NULL;
END
$$;
