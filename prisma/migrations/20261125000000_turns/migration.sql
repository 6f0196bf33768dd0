-- The waiting room of a service without Redis: src/access/postgres-turns.ts. All times are ms since 1970 by the service's clock, as in
-- tickets. No foreign key to "sales": it would lock the row that purchases update.
CREATE TABLE "waiting_rooms" (
    "sale_id" INTEGER NOT NULL,
    "early" INTEGER NOT NULL DEFAULT 0,
    "next_ms" DOUBLE PRECISION NOT NULL DEFAULT 0,
    "expires_ms" DOUBLE PRECISION NOT NULL DEFAULT 0,
    CONSTRAINT "waiting_rooms_pkey" PRIMARY KEY ("sale_id")
)
-- Every turn updates its sale's row. Free space on the page keeps these updates out of the index (HOT).
WITH (fillfactor = 50);

CREATE TABLE "turns" (
    "sale_id" INTEGER NOT NULL,
    "user_id" TEXT NOT NULL,
    "turn_ms" DOUBLE PRECISION NOT NULL,
    "expires_ms" DOUBLE PRECISION NOT NULL,
    CONSTRAINT "turns_pkey" PRIMARY KEY ("sale_id", "user_id")
);
-- For the deletion of expired turns.
CREATE INDEX "turns_expires_ms_idx" ON "turns" ("expires_ms");

-- Gives a customer a turn, as lua/sale/take-turn.lua does: a change of one is a change of both. "drawn" is the turn drawn in the
-- lottery, or null after the start.
CREATE FUNCTION take_turn(
  sale integer, customer text, now_ms float8, drawn float8, start_ms float8, spread_ms float8, per_second float8,
  valid_ms float8, keep_ms float8
) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
  room waiting_rooms;
  turn float8;
  rate float8 := per_second;
  free float8;
BEGIN
  -- The commit does not wait for the disk while the sale's row is locked. A turn that a crash forgets is given again.
  SET LOCAL synchronous_commit = off;
  LOOP
    SELECT * INTO room FROM waiting_rooms WHERE sale_id = sale FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO waiting_rooms (sale_id) VALUES (sale) ON CONFLICT DO NOTHING;
  END LOOP;
  -- This statement's snapshot is taken after the lock, so it has what the request before committed.
  SELECT turn_ms INTO turn FROM turns WHERE sale_id = sale AND user_id = customer AND now_ms < expires_ms;
  IF FOUND THEN RETURN turn; END IF;

  IF drawn IS NOT NULL THEN
    turn := drawn;
    room.early := room.early + 1;
  ELSE
    -- After the start: the next free turn. The lottery has taken its part of each second until it ends.
    turn := greatest(now_ms, room.next_ms);
    IF turn < start_ms + spread_ms THEN
      free := rate - room.early * 1000 / spread_ms;
      IF free < 1 THEN
        turn := start_ms + greatest(spread_ms, room.early * 1000 / rate);
      ELSE
        rate := free;
      END IF;
    END IF;
    room.next_ms := turn + 1000 / rate;
    turn := round(turn);
  END IF;
  UPDATE waiting_rooms SET early = room.early, next_ms = room.next_ms,
    expires_ms = greatest(turn, start_ms + spread_ms) + keep_ms WHERE sale_id = sale;
  INSERT INTO turns VALUES (sale, customer, turn, turn + valid_ms)
    ON CONFLICT (sale_id, user_id) DO UPDATE SET turn_ms = excluded.turn_ms, expires_ms = excluded.expires_ms;
  RETURN turn;
END
$$;
