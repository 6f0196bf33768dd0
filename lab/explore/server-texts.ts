/** What the explorer itself asks of the servers: SQL, and scripts of Redis. None of it is part of a schedule. */

export const EMPTY = `redis.call('SELECT', ARGV[1]) redis.call('FLUSHDB', 'ASYNC')`;
export const COPY = `
  redis.call('SELECT', ARGV[1])
  for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', ARGV[2], 'REPLACE') end`;
export const RESERVATIONS = `
  local function isBegun(server, key, epoch)
    redis.call('SELECT', server)
    local state = redis.call('HGETALL', key)
    for i = 1, #state, 2 do
      if state[i]:find('^begun ') and state[i + 1] == epoch then return true end
    end
  end
  local found = {}
  for i = 3, #ARGV, 2 do
    local key, isLeft = 'stampede:{sale:' .. ARGV[i] .. '}:', false
    for other in ARGV[2]:gmatch('%d+') do isLeft = isLeft or isBegun(other, key .. 'state', ARGV[i + 1]) end
    isLeft = isLeft and not isBegun(ARGV[1], key .. 'state', ARGV[i + 1])
    redis.call('SELECT', ARGV[1])
    if not isLeft and redis.call('HGET', key .. 'state', 'epoch') == ARGV[i + 1] then
      for _, one in ipairs(redis.call('ZRANGE', key .. 'reservations', 0, -1)) do table.insert(found, ARGV[i] .. ' ' .. one) end
    end
  end
  return found`;
export const RESERVED = `
  local found = {}
  for _, server in ipairs(ARGV) do
    redis.call('SELECT', server)
    for _, key in ipairs(redis.call('KEYS', '*:reservations')) do
      for _, one in ipairs(redis.call('ZRANGE', key, 0, -1)) do table.insert(found, one) end
    end
  end
  return found`;
export const LOADED =
  'SELECT id, mirror_epoch AS epoch, stock - sold - oversold AS free FROM sales WHERE mirror_epoch IS NOT NULL';

export const SCHEMA = `
  CREATE SCHEMA explore;
  CREATE SEQUENCE explore.epochs;
  ALTER TABLE redis_epochs ALTER COLUMN epoch SET DEFAULT (1 + nextval('explore.epochs') * 1103515245 % 2147483646)::int;
  CREATE TABLE explore.timeline (n int NOT NULL);
  INSERT INTO explore.timeline VALUES (1);
  GRANT USAGE ON SCHEMA explore TO PUBLIC;
  GRANT SELECT ON explore.timeline TO PUBLIC;
  GRANT USAGE ON SEQUENCE explore.epochs TO PUBLIC;
  ALTER FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RENAME TO real_walfile_name; -- a built-in one cannot be replaced
  CREATE FUNCTION pg_catalog.pg_walfile_name(lsn pg_lsn) RETURNS text LANGUAGE plpgsql STABLE AS
    $$ BEGIN RETURN (SELECT lpad(to_hex(n), 8, '0') || '0000000000000000' FROM explore.timeline); END $$;
  -- What is random in SQL follows from the calls before.
  CREATE SEQUENCE explore.draws;
  GRANT USAGE ON SEQUENCE explore.draws TO PUBLIC;
  ALTER FUNCTION pg_catalog.gen_random_uuid() RENAME TO real_random_uuid;
  CREATE FUNCTION pg_catalog.gen_random_uuid() RETURNS uuid LANGUAGE sql VOLATILE AS $$ SELECT md5(nextval('explore.draws')::text)::uuid $$;
  ALTER FUNCTION pg_catalog.random() RENAME TO real_random;
  CREATE FUNCTION pg_catalog.random() RETURNS float8 LANGUAGE sql VOLATILE AS $$ SELECT (nextval('explore.draws') * 1103515245 % 2147483647) / 2147483647::float8 $$;

  -- Its timeout is that of the virtual clock, like those of statements: what waits is cancelled.
  DO $$ BEGIN EXECUTE replace(replace(pg_get_functiondef('offer_units(int, int)'::regprocedure),
    'lock_not_available', 'lock_not_available OR query_canceled'), '''50ms''', '0'); END $$;

  CREATE FUNCTION explore.tables() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' AND tablename <> '_prisma_migrations' ORDER BY 1 $$;

  DO $$
  DECLARE statements text := ''; name text;
  BEGIN
    FOR name IN SELECT * FROM explore.tables() LOOP
      statements := statements || format('DELETE FROM public.%s; ', name);
      EXECUTE format('CREATE TABLE explore.copy_%1$s (LIKE public.%1$s)', name);
    END LOOP;
    FOR name IN SELECT quote_ident(sequencename) FROM pg_sequences WHERE schemaname = 'public' LOOP
      statements := statements || format('PERFORM setval(%L, 1, false); ', 'public.' || name);
    END LOOP;
    EXECUTE format($f$
      CREATE FUNCTION explore.reset() RETURNS void LANGUAGE plpgsql AS $body$
      BEGIN %s PERFORM setval('explore.epochs', 1, false); PERFORM setval('explore.draws', 1, false); UPDATE explore.timeline SET n = 1 WHERE n <> 1; END $body$ $f$, statements);
    SELECT string_agg(format('public.%1$s, explore.copy_%1$s', t), ', ') INTO name FROM explore.tables() AS t;
    EXECUTE format($f$ CREATE FUNCTION explore.shrink() RETURNS void LANGUAGE plpgsql AS $body$ BEGIN TRUNCATE %s; END $body$ $f$, name);
    SELECT string_agg(format('DELETE FROM explore.copy_%1$s; INSERT INTO explore.copy_%1$s SELECT * FROM public.%1$s; ', t), '') INTO statements FROM explore.tables() AS t;
    EXECUTE format($f$ CREATE FUNCTION explore.save() RETURNS void LANGUAGE plpgsql AS $body$ BEGIN %s END $body$ $f$, statements);
    SELECT string_agg(format('DELETE FROM public.%1$s; INSERT INTO public.%1$s SELECT * FROM explore.copy_%1$s; ', t), '') INTO statements FROM explore.tables() AS t;
    EXECUTE format($f$
      CREATE FUNCTION explore.promote() RETURNS void LANGUAGE plpgsql AS $body$
      BEGIN %s UPDATE explore.timeline SET n = n + 1; END $body$ $f$, statements);
  END $$;
`;

export const ADD_SALES = `
    INSERT INTO sales (id, name, stock, max_per_order, price_cents) OVERRIDING SYSTEM VALUE
    SELECT id, 'sale ' || id, stock, most, $4 FROM unnest($1::int[], $2::int[], $3::int[]) AS given (id, stock, most)`;

/** Which of some processes wait for each other: their ids. */
export const CIRCLE = `
  WITH RECURSIVE waits (pid, other) AS (
    SELECT pid, unnest(pg_blocking_pids(pid)) FROM unnest($1::int[]) AS pid
    UNION SELECT pid, unnest(pg_blocking_pids(other)) FROM waits
  ) SELECT pid FROM waits WHERE pid = other`;
