-- The epoch in which a sale was last loaded in Redis (see "redis_epochs"); null: not since this version. An order that was reserved in
-- another epoch is not inserted: the copy of the sale that is in use now knows neither the unit nor the customer.
ALTER TABLE "sales" ADD COLUMN "mirror_epoch" INTEGER;
-- Returns 1 if each order was reserved in the epoch in which its sale was last loaded, and raises an error otherwise, which rolls the
-- statement back. Null: not known, or of no consequence. Used as before_deadline() is, so that it sees the newest version of the sale.
CREATE FUNCTION in_epoch(loaded integer, reserved integer[]) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF loaded <> ANY (reserved) THEN
    RAISE EXCEPTION 'the sale was loaded in another epoch since the order was reserved' USING ERRCODE = 'ST002';
  END IF;
  RETURN 1;
END
$$;
