-- Limits.  Windows follow the clock: one of a minute begins when the clock's minute does.

-- name: CountCall
INSERT INTO eventkit_rate AS r (name, per, amount, counted_at, until)
VALUES (:name, :per, 1, :now, :now - :now % :per + :per)
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
VALUES (:name, 0, :burst - 1, :now, :now + 2 * :full_after)
ON CONFLICT (name, per) DO UPDATE
SET
    amount = min(:burst, r.amount + max(0, :now - r.counted_at) * :rate / 1000) - 1,
    counted_at = max(r.counted_at, :now),
    until = CASE WHEN r.until >= :now + :full_after THEN r.until ELSE excluded.until END
WHERE min(:burst, r.amount + max(0, :now - r.counted_at) * :rate / 1000) > 0.999999
RETURNING 1

-- name: AdvanceRates
UPDATE eventkit_rate
SET counted_at = counted_at - :milliseconds, until = until - :milliseconds
