-- Workers.

-- step: DropWorkers
DELETE FROM eventkit_worker WHERE seen_at <= :now - :older_than

-- Skips from one queue to the next by the index, so that scheduled tasks are not scanned.
-- name: ListWorkers
WITH RECURSIVE
clock (now) AS (SELECT :now),
waking (name) AS (
    SELECT ''
    UNION ALL
    SELECT (SELECT min(t.queue) FROM eventkit_task AS t WHERE t.wake_at IS NOT NULL AND t.queue > w.name)
    FROM waking AS w
    WHERE w.name IS NOT NULL
)
SELECT name, queues, slots, running, 0, started_at, seen_at, NULL, seen_at > now - :alive
FROM clock, eventkit_worker
UNION ALL
SELECT * FROM (
    SELECT worker, json_array(queue), NULL, NULL, count(*), NULL, NULL, min(claimed_at), 0
    FROM (
        SELECT t.worker, t.queue, t.claimed_at
        FROM clock, waking AS w, eventkit_task AS t
        WHERE t.queue = w.name AND t.state = 'leased' AND t.wake_at > now AND t.worker IS NOT NULL
        LIMIT :limit
    )
    GROUP BY worker, queue
)
