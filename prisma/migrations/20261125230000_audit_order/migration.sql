-- The service's role may append to the audit log. A row with the largest id would have left no id for the next one.
CREATE FUNCTION audit_log_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  last bigint;
BEGIN
  -- By its schema: a temporary table of the role is not the log.
  EXECUTE format('SELECT max(id) FROM %I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME) INTO last;
  IF NEW.id <> coalesce(last, 0) + 1 THEN
    RAISE EXCEPTION 'audit_log is numbered without a gap' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER "audit_log_in_order" BEFORE INSERT ON "audit_log"
    FOR EACH ROW EXECUTE FUNCTION audit_log_in_order();
