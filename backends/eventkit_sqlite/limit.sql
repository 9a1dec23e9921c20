-- Limits.  Windows follow the clock: a window of a minute begins with the clock's minute.  Counts from a clock that was
-- ahead by more than a second start again: with an empty window, or a bucket of at least one token.

-- name: CountCall
INSERT INTO eventkit_rate AS r (name, per, amount, counted_at, until)
VALUES (:name, :per, 1, :now, :now - :now % :per + :per)
ON CONFLICT (name, per) DO UPDATE
SET
    amount = iif(r.until BETWEEN :now + 1 AND :now + :per + 1000, r.amount + 1, 1),
    counted_at = :now,
    until = iif(r.until BETWEEN :now + 1 AND :now + :per + 1000, r.until, excluded.until)
WHERE r.amount < :limit OR r.until NOT BETWEEN :now + 1 AND :now + :per + 1000
RETURNING 1

-- Rounding may leave a token short by a millionth, which is owed.  The row lives for twice its useful time, so that not
-- every call moves it in the index of expired rows.
-- name: TakeToken
INSERT INTO eventkit_rate AS r (name, per, amount, counted_at, until)
VALUES (:name, 0, :burst - 1, :now, :now + 2 * :full_after)
ON CONFLICT (name, per) DO UPDATE
SET
    amount = iif(
        r.counted_at > :now + 1000, max(1, r.amount), min(:burst, r.amount + max(0, :now - r.counted_at) * :rate / 1000)
    ) - 1,
    counted_at = iif(r.counted_at > :now + 1000, :now, max(r.counted_at, :now)),
    until = iif(r.counted_at > :now + 1000 OR r.until < :now + :full_after, excluded.until, r.until)
WHERE
    r.counted_at > :now + 1000
    OR min(:burst, r.amount + max(0, :now - r.counted_at) * :rate / 1000) > 0.999999
RETURNING 1

-- Limits over several queues.

-- step: SaveClusterLimit
INSERT INTO eventkit_cluster_limit (name, queue, max_running)
SELECT :name, value, :max_running FROM json_each(:queues)
WHERE true
ON CONFLICT (name, queue) DO UPDATE
SET max_running = excluded.max_running

-- step: TrimClusterLimit
DELETE FROM eventkit_cluster_limit WHERE name = :name AND queue NOT IN (SELECT value FROM json_each(:queues))
RETURNING 1

-- name: ListClusterLimits
SELECT l.name, max(l.max_running), json_group_array(l.queue), sum(
    (SELECT count(*) FROM eventkit_task AS t WHERE t.queue = l.queue AND t.state = 'leased' AND t.wake_at > :now)
)
FROM (SELECT * FROM eventkit_cluster_limit ORDER BY name, queue) AS l
GROUP BY l.name
ORDER BY l.name
