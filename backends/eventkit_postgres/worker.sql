-- Workers.

-- step: DropWorkers
DELETE FROM eventkit_worker WHERE seen_at <= :now - :older_than::bigint * interval '1 ms'

-- name: ListWorkers
:with_queues
SELECT
    name, queues, slots, running, 0::bigint, eventkit_ms(started_at), eventkit_ms(seen_at), NULL::bigint,
    seen_at > :now - :alive::bigint * interval '1 ms'
FROM eventkit_worker
UNION ALL
(
    SELECT worker, json_build_array(queue)::text, NULL, NULL, count(*), NULL, NULL, eventkit_ms(min(claimed_at)), false
    FROM (
        SELECT t.worker, t.queue, t.claimed_at
        FROM queues AS q, eventkit_task AS t
        WHERE t.queue = q.name AND t.state = 'leased' AND t.wake_at > :now AND t.worker IS NOT NULL
        LIMIT :limit
    ) AS few
    GROUP BY worker, queue
)
