-- A factor of 1 while the deadline has not passed; afterwards an error, which rolls the statement back. Each statement that
-- places an order multiplies the units that it counts in `sales.sold` with it: see store/late-requests.ts.
CREATE FUNCTION before_deadline(deadline timestamptz) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF clock_timestamp() >= deadline THEN
    RAISE EXCEPTION 'the statement came after its deadline' USING ERRCODE = 'ST001';
  END IF;
  RETURN 1;
END
$$;
