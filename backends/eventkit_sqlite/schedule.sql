-- Schedules and their fires.

-- name: ReadClock
SELECT :now

-- A schedule with unchanged timing keeps its next fire, and a paused one stays paused.
-- step: WriteSchedule
INSERT INTO eventkit_schedule AS s (
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, timed_at
)
VALUES (
    :name, :when, :tz, :queue, :payload, :headers, :priority, :expires, :max_attempts, :catch_up, :next_at, :now
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

-- step: HoldSchedule
SELECT timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at
FROM eventkit_schedule
WHERE name = :name

-- step: RewriteSchedule
UPDATE eventkit_schedule
SET
    timing = :when, zone = :tz, queue = :queue, payload = :payload, headers = :headers, priority = :priority,
    expires = :expires, max_attempts = :max_attempts, catch_up = :catch_up, next_at = :next_at,
    timed_at = iif(next_at = :next_at, timed_at, :now)
WHERE name = :name

-- part: schedule
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at

-- name: GetSchedule
SELECT :schedule, last_at, fired, skipped
FROM eventkit_schedule
WHERE name = :name

-- name: ListSchedules
SELECT :schedule, last_at, fired, skipped
FROM eventkit_schedule
ORDER BY name

-- name: ReadSoonest
SELECT min(next_at) FROM eventkit_schedule

-- name: SchedulesAhead
SELECT
    coalesce(soonest <= now, false)
    OR EXISTS (SELECT 1 FROM eventkit_schedule WHERE timed_at > :now + 1000 AND next_at IS NOT NULL),
    soonest,
    now
FROM (SELECT :now AS now, (SELECT min(next_at) FROM eventkit_schedule) AS soonest)

-- Includes schedules whose next fire was set by a clock that was ahead by more than a second.
-- name: Tick
SELECT :schedule, coalesce(:moment, :now)
FROM eventkit_schedule
WHERE
    next_at <= coalesce(:moment, :now)
    OR :moment IS NULL AND timed_at > :now + 1000 AND next_at IS NOT NULL
ORDER BY next_at
LIMIT :limit

-- The queue's bound does not apply: a refused fire would be lost.
-- step: EnqueueFires
:insert_tasks
FROM (
    SELECT
        value ->> 0 AS queue, value ->> 1 AS payload, value ->> 2 AS headers, value ->> 3 AS priority,
        value ->> 4 AS max_attempts, NULL AS key, NULL AS group_key, value ->> 5 AS due, value ->> 6 AS expires, now
    FROM (SELECT :now AS now), json_each(:tasks)
)
RETURNING id

-- step: MoveSchedules
UPDATE eventkit_schedule
SET
    next_at = value ->> 1, last_at = coalesce(value ->> 2, last_at),
    fired = fired + (value ->> 3), skipped = skipped + (value ->> 4), timed_at = :now
FROM json_each(:moves)
WHERE name = value ->> 0
