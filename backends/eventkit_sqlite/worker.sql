-- Workers.

-- step: DropWorkers
DELETE FROM eventkit_worker WHERE seen_at <= :now - :older_than

-- name: ListWorkers
:with_queues
SELECT name, queues, slots, running, 0, started_at, seen_at, NULL, seen_at > :now - :alive
FROM eventkit_worker
UNION ALL
SELECT * FROM (
    SELECT worker, json_array(queue), NULL, NULL, count(*), NULL, NULL, min(claimed_at), 0
    FROM (
        SELECT t.worker, t.queue, t.claimed_at
        FROM queues AS q, eventkit_task AS t
        WHERE t.queue = q.name AND t.state = 'leased' AND t.wake_at > :now AND t.worker IS NOT NULL
        LIMIT :limit
    )
    GROUP BY worker, queue
)
