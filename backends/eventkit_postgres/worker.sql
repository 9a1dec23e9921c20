-- Workers.

-- step: DropWorkers
DELETE FROM eventkit_worker WHERE seen_at <= :now - :older_than::bigint * interval '1 ms'

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
SELECT
    name, queues, slots, running, 0::bigint, eventkit_ms(started_at), eventkit_ms(seen_at), NULL::bigint,
    seen_at > now - :alive::bigint * interval '1 ms'
FROM clock, eventkit_worker
UNION ALL
(
    SELECT worker, json_build_array(queue)::text, NULL, NULL, count(*), NULL, NULL, eventkit_ms(min(claimed_at)), false
    FROM (
        SELECT t.worker, t.queue, t.claimed_at
        FROM waking AS w, eventkit_task AS t
        WHERE t.queue = w.name AND t.state = 'leased' AND t.wake_at > :now AND t.worker IS NOT NULL
        LIMIT :limit
    ) AS few
    GROUP BY worker, queue
)
