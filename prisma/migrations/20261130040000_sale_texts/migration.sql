-- What a page shows of a sale. The texts have a table for themselves: each order writes a new version of the sale's row, which would copy
-- them.
CREATE TABLE "sale_texts" (
    "sale_id" INTEGER NOT NULL,
    "description" TEXT,
    "image_url" TEXT,
    CONSTRAINT "sale_texts_pkey" PRIMARY KEY ("sale_id"),
    CONSTRAINT "sale_texts_sale_id_fkey" FOREIGN KEY ("sale_id") REFERENCES "sales"("id") ON DELETE CASCADE,
    CONSTRAINT "sale_texts_description_bounded" CHECK (char_length("description") BETWEEN 1 AND 2000),
    -- The host of the picture becomes part of the page's Content-Security-Policy: no character of it has a meaning there.
    CONSTRAINT "sale_texts_image_url_plain" CHECK (
        char_length("image_url") <= 1000
        AND "image_url" ~ '^https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?/[!-~]*$'
    )
);

-- ISO 4217; null: the sale is from before this migration, and has the currency of the service.
ALTER TABLE "sales" ADD COLUMN "currency" TEXT;

-- A trigger for the same reason as `check_terms`. The amounts of orders are in the sale's currency, so it is fixed once there are some.
CREATE FUNCTION check_currency() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  violated text := CASE
    WHEN NEW.currency !~ '^[A-Z]{3}$' THEN 'sales_currency_form'
    WHEN TG_OP = 'UPDATE' AND NEW.currency <> OLD.currency AND EXISTS (SELECT FROM orders WHERE sale_id = NEW.id)
      THEN 'sales_currency_fixed'
  END;
BEGIN
  IF violated IS NOT NULL THEN
    RAISE EXCEPTION 'new row for relation "sales" violates constraint "%"', violated
      USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = violated;
  END IF;
  RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER sales_currency AFTER INSERT OR UPDATE OF currency ON "sales"
    FOR EACH ROW EXECUTE FUNCTION check_currency();
