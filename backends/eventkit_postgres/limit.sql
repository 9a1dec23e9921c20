-- Limits.  Counts from a clock that was ahead by more than a second start again: with an empty window, or a bucket of
-- at least one token.

-- name: CountCall
SELECT 1 WHERE eventkit_count_call(:name, :per, :limit)

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

-- Limits over several queues.  A change wakes the workers of all of them.

-- Claims lock the rows in the same order.
-- step: SaveClusterLimit
WITH held AS MATERIALIZED (
    SELECT FROM eventkit_cluster_limit WHERE name = :name ORDER BY queue FOR UPDATE
)
INSERT INTO eventkit_cluster_limit (name, queue, max_running)
SELECT :name, queue, :max_running
FROM (SELECT count(*) FROM held) AS first, unnest(:queues::text[]) AS queue
ORDER BY queue
ON CONFLICT (name, queue) DO UPDATE
SET max_running = excluded.max_running
RETURNING eventkit_wake('task', queue)

-- step: TrimClusterLimit
DELETE FROM eventkit_cluster_limit WHERE name = :name AND queue <> ALL (:queues::text[])
RETURNING eventkit_wake('task', queue)

-- name: ListClusterLimits
SELECT l.name, max(l.max_running), json_agg(l.queue ORDER BY l.queue)::text, sum(
    (SELECT count(*) FROM eventkit_task AS t WHERE t.queue = l.queue AND t.state = 'leased' AND t.wake_at > :now)
)::bigint
FROM eventkit_cluster_limit AS l
GROUP BY l.name
ORDER BY l.name
