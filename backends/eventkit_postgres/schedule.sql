-- Schedules and their fires.

-- name: ReadClock
SELECT eventkit_ms(:now)

-- A schedule with unchanged timing keeps its next fire, and a paused one stays paused.
-- step: WriteSchedule
INSERT INTO eventkit_schedule AS s (
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, timed_at
)
VALUES (
    :name, :when, :tz, :queue, :payload::json, :headers::json, :priority::integer, :expires::bigint,
    :max_attempts::bigint, :catch_up, eventkit_moment(:next_at::bigint), :now
)
ON CONFLICT (name) DO UPDATE
SET
    timing = excluded.timing, zone = excluded.zone, queue = excluded.queue, payload = excluded.payload,
    headers = excluded.headers, priority = excluded.priority, expires = excluded.expires,
    max_attempts = excluded.max_attempts, catch_up = excluded.catch_up,
    next_at = CASE
        WHEN s.next_at IS NULL OR excluded.next_at IS NULL THEN NULL
        WHEN s.timing = excluded.timing AND s.zone = excluded.zone THEN s.next_at
        ELSE excluded.next_at
    END,
    timed_at = CASE
        WHEN s.next_at IS NOT NULL AND s.timing = excluded.timing AND s.zone = excluded.zone THEN s.timed_at
        ELSE excluded.timed_at
    END
RETURNING eventkit_wake('schedule', 'all')

-- An update rather than a lock, so that a transaction with an older snapshot fails to serialize.
-- step: HoldSchedule
UPDATE eventkit_schedule SET name = name
WHERE name = :name
RETURNING
    timing, zone, queue, payload::text, headers::text, priority, expires, max_attempts, catch_up, eventkit_ms(next_at)

-- step: RewriteSchedule
UPDATE eventkit_schedule
SET
    timing = :when, zone = :tz, queue = :queue, payload = :payload::json, headers = :headers::json,
    priority = :priority::integer, expires = :expires::bigint, max_attempts = :max_attempts::bigint,
    catch_up = :catch_up, next_at = eventkit_moment(:next_at::bigint),
    timed_at = CASE WHEN next_at = eventkit_moment(:next_at::bigint) THEN timed_at ELSE :now END
WHERE name = :name
RETURNING eventkit_wake('schedule', 'all')

-- part: schedule
    name, timing, zone, queue, payload::text, headers::text, priority, expires, max_attempts, catch_up,
    eventkit_ms(next_at)

-- name: GetSchedule
SELECT :schedule, eventkit_ms(last_at), fired, skipped
FROM eventkit_schedule
WHERE name = :name

-- name: ListSchedules
SELECT :schedule, eventkit_ms(last_at), fired, skipped
FROM eventkit_schedule
ORDER BY name COLLATE "C"

-- name: ReadSoonest
SELECT eventkit_ms(min(next_at)) FROM eventkit_schedule

-- A schedule locked by another process is polled again soon, because that process may leave it unchanged.
-- name: SchedulesAhead
SELECT
    free,
    eventkit_ms(CASE WHEN soonest <= now AND NOT free THEN least(later, now + interval '20 ms') ELSE soonest END),
    eventkit_ms(now)
FROM
    (SELECT :now AS now, (SELECT min(next_at) FROM eventkit_schedule) AS soonest) AS clock
    CROSS JOIN LATERAL (
        SELECT
            EXISTS (
                SELECT FROM eventkit_schedule AS s
                WHERE
                    (s.next_at <= :now OR s.timed_at > :now + interval '1 s' AND s.next_at IS NOT NULL)
                    AND (s.xmax = '0' OR NOT eventkit_in_hand(s.xmax))
            ) AS free,
            (SELECT min(next_at) FROM eventkit_schedule WHERE next_at > :now) AS later
    ) AS due

-- Includes schedules whose next fire was set by a clock that was ahead by more than a second.
-- name: Tick
SELECT :schedule, eventkit_ms(coalesce(eventkit_moment(:moment::bigint), :now))
FROM eventkit_schedule
WHERE
    next_at <= coalesce(eventkit_moment(:moment::bigint), :now)
    OR :moment::bigint IS NULL AND timed_at > :now + interval '1 s' AND next_at IS NOT NULL
ORDER BY next_at
LIMIT :limit
FOR UPDATE SKIP LOCKED

-- The queue's bound does not apply: a refused fire would be lost.
-- step: EnqueueFires
WITH
:woken_queues,
added AS (
    :insert_tasks
    FROM (
        SELECT
            queue, payload::json, headers::json, priority, max_attempts, NULL::text AS key, NULL::text AS group_key,
            eventkit_moment(due) AS due, eventkit_moment(expires) AS expires, now
        FROM
            woken,
            (SELECT :now AS now) AS clock,
            unnest(
                :tasks.0::text[], :tasks.1::text[], :tasks.2::text[], :tasks.3::integer[], :tasks.4::bigint[],
                :tasks.5::bigint[], :tasks.6::bigint[]
            ) AS t (queue, payload, headers, priority, max_attempts, due, expires)
    ) AS task
    RETURNING id, queue, priority, state, run_at
),
opened AS (
    :lower_marks
)
SELECT id
FROM added

-- step: MoveSchedules
UPDATE eventkit_schedule AS s
SET
    next_at = eventkit_moment(m.next_at), last_at = coalesce(eventkit_moment(m.last_at), s.last_at),
    fired = s.fired + m.fired, skipped = s.skipped + m.skipped, timed_at = :now
FROM unnest(
    :moves.0::text[], :moves.1::bigint[], :moves.2::bigint[], :moves.3::bigint[], :moves.4::bigint[]
) AS m (name, next_at, last_at, fired, skipped)
WHERE s.name = m.name
