-- Limits.  Windows follow the clock: a window of a minute begins with the clock's minute.  A call that waited for the
-- row may find it in a later window than the time of the call, and is counted there.  A refused call mostly only reads:
-- a conflicting insert would lock the row, which is a write and a commit.  Counts from a clock that was ahead by more
-- than a second start again: with an empty window, or a bucket of at least one token.

-- name: CountCall
INSERT INTO eventkit_rate AS r (name, per, amount, counted_at, until)
SELECT :name, :per, 1, :now, eventkit_moment(eventkit_ms(:now) - eventkit_ms(:now) % :per + :per)
WHERE NOT EXISTS (
    SELECT FROM eventkit_rate
    WHERE
        name = :name AND per = :per AND amount >= :limit
        AND until > :now AND until <= :now + (:per + 1000) * interval '1 ms'
)
ON CONFLICT (name, per) DO UPDATE
SET
    amount = CASE
        WHEN :now < r.until AND r.until <= clock_timestamp() + (r.per + 1000) * interval '1 ms' THEN r.amount + 1
        ELSE 1
    END,
    counted_at = :now,
    until = CASE
        WHEN :now < r.until AND r.until <= clock_timestamp() + (r.per + 1000) * interval '1 ms' THEN r.until
        ELSE excluded.until
    END
WHERE
    r.amount < :limit OR :now >= r.until
    OR r.until > clock_timestamp() + (r.per + 1000) * interval '1 ms'
RETURNING 1

-- Rounding may leave a token short by a millionth, which is owed.  The row lives for twice its useful time, so that not
-- every call moves it in the index of expired rows.
-- name: TakeToken
INSERT INTO eventkit_rate AS r (name, per, amount, counted_at, until)
VALUES (:name, 0, :burst::float8 - 1, :now, :now + 2 * :full_after::bigint * interval '1 ms')
ON CONFLICT (name, per) DO UPDATE
SET
    amount = CASE
        WHEN r.counted_at > clock_timestamp() + interval '1 s' THEN greatest(1, r.amount)
        ELSE least(:burst, r.amount + greatest(0, date_part('epoch', :now - r.counted_at)) * :rate::float8)
    END - 1,
    counted_at = CASE
        WHEN r.counted_at > clock_timestamp() + interval '1 s' THEN :now ELSE greatest(r.counted_at, :now)
    END,
    until = CASE
        WHEN r.counted_at > clock_timestamp() + interval '1 s' OR r.until < :now + :full_after * interval '1 ms'
        THEN excluded.until
        ELSE r.until
    END
WHERE
    r.counted_at > clock_timestamp() + interval '1 s'
    OR least(:burst, r.amount + greatest(0, date_part('epoch', :now - r.counted_at)) * :rate) > 0.999999
RETURNING 1
