-- Limits.  Windows follow the clock: one of a minute begins when the clock's minute does.  Who had to wait for the
-- row may find it in a later window than the moment of the call, and is counted there.  Who is refused mostly only reads:
-- a row that is in conflict would be locked, and that written and committed.

-- name: CountCall
INSERT INTO eventkit_rate AS r (name, per, amount, counted_at, until)
SELECT :name, :per, 1, :now, eventkit_moment(eventkit_ms(:now) - eventkit_ms(:now) % :per + :per)
WHERE NOT EXISTS (
    SELECT FROM eventkit_rate WHERE name = :name AND per = :per AND amount >= :limit AND until > :now
)
ON CONFLICT (name, per) DO UPDATE
SET
    amount = CASE WHEN :now < r.until THEN r.amount + 1 ELSE 1 END,
    counted_at = :now,
    until = CASE WHEN :now < r.until THEN r.until ELSE excluded.until END
WHERE r.amount < :limit OR :now >= r.until
RETURNING 1

-- A whole token may be missing a millionth by rounding, which is then owed.  The row is let live for twice as long as it
-- has something to say, so that not every call has to move it in the index of what is over.
-- name: TakeToken
INSERT INTO eventkit_rate AS r (name, per, amount, counted_at, until)
VALUES (:name, 0, :burst::float8 - 1, :now, :now + 2 * :full_after::bigint * interval '1 ms')
ON CONFLICT (name, per) DO UPDATE
SET
    amount = least(:burst, r.amount + greatest(0, date_part('epoch', :now - r.counted_at)) * :rate::float8) - 1,
    counted_at = greatest(r.counted_at, :now),
    until = CASE WHEN r.until >= :now + :full_after * interval '1 ms' THEN r.until ELSE excluded.until END
WHERE least(:burst, r.amount + greatest(0, date_part('epoch', :now - r.counted_at)) * :rate) > 0.999999
RETURNING 1

-- name: AdvanceRates
UPDATE eventkit_rate
SET
    counted_at = counted_at - :milliseconds::bigint * interval '1 ms',
    until = until - :milliseconds::bigint * interval '1 ms'
