-- Gives customers their turns, as one after the other would get them: one commit for customers who arrive together. The arrays have an
-- element for each of them, ordered by sale: the sale, the customer, the turn in the lottery (null: it is over), and what it depends on.
-- All times are ms since 1970. A customer whose sale's room is locked gets null, if such rooms are skipped.
CREATE FUNCTION take_turns(
  sales integer[], customers text[], drawn float8[], nows_ms float8[], starts_ms float8[], spreads_ms float8[], valid_ms float8[],
  per_second float8, keep_ms float8, skip_locked boolean
) RETURNS float8[] LANGUAGE plpgsql AS $$
DECLARE
  room waiting_rooms;
  given float8;
  turn float8;
  answers float8[] := array_fill(NULL::float8, ARRAY[cardinality(sales)]);
  n integer := 1;
  sale integer;
BEGIN
  -- The commit does not wait for the disk while the rooms are locked. A turn that a crash forgets is given again.
  SET LOCAL synchronous_commit = off;
  WHILE n <= cardinality(sales) LOOP
    sale := sales[n];
    FOR tries IN 1 .. 2 LOOP
      IF skip_locked THEN
        SELECT * INTO room FROM waiting_rooms WHERE sale_id = sale FOR UPDATE SKIP LOCKED;
      ELSE
        SELECT * INTO room FROM waiting_rooms WHERE sale_id = sale FOR UPDATE;
      END IF;
      EXIT WHEN FOUND;
      INSERT INTO waiting_rooms (sale_id) VALUES (sale) ON CONFLICT DO NOTHING;
    END LOOP;
    IF room.sale_id IS NULL THEN
      n := n + cardinality(array_positions(sales, sale));
      CONTINUE;
    END IF;
    WHILE sales[n] = sale LOOP
      -- This statement's snapshot is taken after the lock, so it has what the requests before committed.
      SELECT turn_ms INTO given FROM turns AS t
        WHERE t.sale_id = sale AND t.user_id = customers[n] AND nows_ms[n] < t.turn_ms + valid_ms[n];
      -- After the lottery: the next free turn, behind the lottery's if they are more than can be served meanwhile.
      turn := coalesce(drawn[n], greatest(nows_ms[n], room.next_ms,
        CASE WHEN spreads_ms[n] > 0 THEN starts_ms[n] + room.early * 1000 / per_second END));
      -- While the start stays, a new turn is never earlier than the one given.
      IF given <= turn + 1 AND (drawn[n] IS NULL OR given >= starts_ms[n]) THEN
        turn := given;
      ELSE
        IF drawn[n] IS NOT NULL THEN
          room.early := room.early + 1;
        ELSE
          room.next_ms := turn + 1000 / per_second;
          turn := round(turn);
        END IF;
        room.expires_ms := greatest(turn, starts_ms[n] + spreads_ms[n]) + keep_ms;
        INSERT INTO turns VALUES (sale, customers[n], turn, turn + valid_ms[n])
          ON CONFLICT (sale_id, user_id) DO UPDATE SET turn_ms = excluded.turn_ms, expires_ms = excluded.expires_ms;
      END IF;
      answers[n] := turn;
      n := n + 1;
    END LOOP;
    UPDATE waiting_rooms SET early = room.early, next_ms = room.next_ms, expires_ms = room.expires_ms WHERE sale_id = sale;
  END LOOP;
  RETURN answers;
END
$$;
