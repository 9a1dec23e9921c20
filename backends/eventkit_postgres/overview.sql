-- The overview of the database.

-- Skips from one name to the next by the indexes and counts nothing beyond :limit, so the cost grows with the names,
-- not with the rows.  The numbers of a queue are those of ReadStats.
-- name: ReadOverview
WITH RECURSIVE
clock (now) AS (SELECT :now),
working (name) AS (
    SELECT ''
    UNION ALL
    SELECT (
        SELECT min(queue) FROM (
            SELECT min(t.queue) AS queue FROM eventkit_task AS t WHERE t.state = 'ready' AND t.queue > w.name
            UNION ALL
            SELECT min(t.queue) FROM eventkit_task AS t WHERE t.wake_at IS NOT NULL AND t.queue > w.name
            UNION ALL
            SELECT min(t.queue) FROM eventkit_task AS t WHERE t.finished_at IS NOT NULL AND t.queue > w.name
        ) AS further
    )
    FROM working AS w
    WHERE w.name IS NOT NULL
),
publishing (name) AS (
    SELECT ''
    UNION ALL
    SELECT (SELECT min(e.topic) FROM eventkit_event AS e WHERE e.topic > p.name)
    FROM publishing AS p
    WHERE p.name IS NOT NULL
),
queues (name) AS (SELECT name FROM working WHERE name <> '' UNION SELECT name FROM eventkit_queue),
topics (name) AS (
    SELECT name FROM publishing WHERE name <> ''
    UNION
    SELECT name FROM eventkit_topic
    UNION
    SELECT topic FROM eventkit_consumer
)
SELECT
    'queue', q.name, json_build_array(
        eventkit_ms(now),
        coalesce((SELECT paused FROM eventkit_queue WHERE name = q.name), false),
        json_build_array(
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'scheduled' AND wake_at > :now LIMIT :limit) AS few),
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'ready' LIMIT :limit) AS few),
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'leased' AND wake_at > :now LIMIT :limit) AS few),
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'dead' AND finished_at IS NOT NULL LIMIT :limit) AS few),
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'done' AND finished_at IS NOT NULL LIMIT :limit) AS few)
        ),
        (
            SELECT json_build_array(
                count(*),
                count(*) FILTER (WHERE state = 'ready'),
                count(*) FILTER (WHERE stored_state = 'ready'),
                count(*) FILTER (WHERE state = 'dead'),
                eventkit_ms(min(run_at) FILTER (WHERE state = 'ready'))
            )
            FROM (
                SELECT stored_state, state, run_at
                FROM eventkit_task_now
                WHERE queue = q.name AND stored_state IN ('scheduled', 'leased', 'ready') AND wake_at <= :now
                LIMIT :limit
            ) AS due
        ),
        (
            WITH RECURSIVE priorities (priority) AS (
                SELECT max(priority) FROM eventkit_task WHERE queue = q.name AND state = 'ready'
                UNION ALL
                SELECT (
                    SELECT max(t.priority) FROM eventkit_task AS t
                    WHERE t.queue = q.name AND t.state = 'ready' AND t.priority < p.priority
                )
                FROM priorities AS p
                WHERE p.priority IS NOT NULL
            )
            SELECT eventkit_ms(min(run_at)) FROM (
                SELECT (
                    SELECT min(t.run_at) FROM eventkit_task AS t
                    WHERE
                        t.queue = q.name AND t.state = 'ready' AND t.priority = p.priority
                        AND (t.expires_at IS NULL OR t.expires_at > :now)
                ) AS run_at
                FROM priorities AS p
            ) AS oldest
        )
    )::text
FROM clock, queues AS q
UNION ALL
SELECT
    'topic', t.name, json_build_array(
        eventkit_head(t.name),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_event WHERE topic = t.name LIMIT :limit) AS few)
    )::text
FROM topics AS t
UNION ALL
SELECT
    'consumer', c.topic, json_build_array(
        c.name,
        c.position,
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_event AS e WHERE e.topic = c.topic AND e.id > c.position LIMIT :limit) AS few),
        eventkit_ms(c.updated_at)
    )::text
FROM eventkit_consumer AS c
UNION ALL
SELECT 'schedule', name, json_build_array(queue, eventkit_ms(next_at), eventkit_ms(last_at), fired, skipped)::text
FROM eventkit_schedule
UNION ALL
SELECT 'lock', name, json_build_array(holder, fence, eventkit_ms(expires_at))::text
FROM eventkit_lock
WHERE expires_at > :now
UNION ALL
SELECT 'result', '', json_build_array(count(*))::text
FROM (SELECT 1 FROM eventkit_result WHERE expires_at > :now LIMIT :limit) AS few
