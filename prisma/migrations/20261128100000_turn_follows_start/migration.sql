-- A turn that the sale's start has moved away from is given again: a customer with a turn of a later start could not buy.
-- As in lua/sale/take-turn.lua: a change of one is a change of both.
CREATE OR REPLACE FUNCTION take_turn(
  sale integer, customer text, now_ms float8, drawn float8, start_ms float8, spread_ms float8, per_second float8,
  valid_ms float8, keep_ms float8
) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
  room waiting_rooms;
  given float8;
  turn float8;
BEGIN
  -- The commit does not wait for the disk while the sale's row is locked. A turn that a crash forgets is given again.
  SET LOCAL synchronous_commit = off;
  LOOP
    SELECT * INTO room FROM waiting_rooms WHERE sale_id = sale FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO waiting_rooms (sale_id) VALUES (sale) ON CONFLICT DO NOTHING;
  END LOOP;
  -- This statement's snapshot is taken after the lock, so it has what the request before committed.
  SELECT turn_ms INTO given FROM turns WHERE sale_id = sale AND user_id = customer AND now_ms < turn_ms + valid_ms;
  -- After the lottery: the next free turn, behind the lottery's if they are more than can be served meanwhile.
  turn := coalesce(drawn,
    greatest(now_ms, room.next_ms, CASE WHEN spread_ms > 0 THEN start_ms + room.early * 1000 / per_second END));
  -- While the start stays, a new turn is never earlier than the one given.
  IF given <= turn + 1 AND (drawn IS NULL OR given >= start_ms) THEN RETURN given; END IF;

  IF drawn IS NOT NULL THEN
    room.early := room.early + 1;
  ELSE
    room.next_ms := turn + 1000 / per_second;
    turn := round(turn);
  END IF;
  UPDATE waiting_rooms SET early = room.early, next_ms = room.next_ms,
    expires_ms = greatest(turn, start_ms + spread_ms) + keep_ms WHERE sale_id = sale;
  INSERT INTO turns VALUES (sale, customer, turn, turn + valid_ms)
    ON CONFLICT (sale_id, user_id) DO UPDATE SET turn_ms = excluded.turn_ms, expires_ms = excluded.expires_ms;
  RETURN turn;
END
$$;
