-- Locks, limits, results and schedules.

-- name: AcquireLock
INSERT INTO elsewhere_lock AS l (name, fence, token, holder, ttl, expires_at)
VALUES (:name, 1, :token, :holder, :ttl, :now + :ttl)
ON CONFLICT (name) DO UPDATE
SET
    fence = iif(l.expires_at > :now, l.fence, l.fence + 1),
    token = iif(l.expires_at > :now, l.token, excluded.token),
    holder = iif(l.expires_at > :now, l.holder, excluded.holder),
    ttl = iif(l.expires_at > :now, l.ttl, excluded.ttl),
    expires_at = iif(l.expires_at > :now, :now + l.ttl, excluded.expires_at)
WHERE (l.expires_at > :now) IS NOT TRUE OR l.expires_at > :now + l.ttl + 1000
RETURNING iif(token = :token, fence, NULL)

-- name: RenewLock
UPDATE elsewhere_lock
SET ttl = :ttl, expires_at = :now + :ttl
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING fence

-- name: ReleaseLock
UPDATE elsewhere_lock
SET token = NULL, holder = NULL, expires_at = NULL
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING fence

-- name: ReadHolder
SELECT holder, expires_at FROM elsewhere_lock WHERE name = :name AND expires_at > :now

-- name: LockAhead
SELECT
    (
        SELECT expires_at FROM elsewhere_lock
        WHERE name = :name AND expires_at > :now AND expires_at <= :now + ttl + 1000
    ),
    :now

-- name: CountCall
INSERT INTO elsewhere_rate AS r (name, per, amount, counted_at, until)
VALUES (:name, :per, 1, :now, :now - :now % :per + :per)
ON CONFLICT (name, per) DO UPDATE
SET
    amount = iif(r.until BETWEEN :now + 1 AND :now + :per + 1000, r.amount + 1, 1),
    counted_at = :now,
    until = iif(r.until BETWEEN :now + 1 AND :now + :per + 1000, r.until, excluded.until)
WHERE r.amount < :limit OR r.until NOT BETWEEN :now + 1 AND :now + :per + 1000
RETURNING 1

-- name: TakeToken
INSERT INTO elsewhere_rate AS r (name, per, amount, counted_at, until)
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

-- name: ListLimits
SELECT name, per, amount, counted_at, until FROM elsewhere_rate WHERE until > :now ORDER BY name, per LIMIT :limit

-- name: SaveResult
INSERT INTO elsewhere_result (id, value, expires_at)
VALUES (:id, :value, :now + :ttl)
ON CONFLICT (id) DO UPDATE
SET value = excluded.value, expires_at = excluded.expires_at

-- name: SaveTaskResult
INSERT INTO elsewhere_result (id, value, expires_at)
VALUES (
    :id, :value,
    :now + coalesce(:ttl, max(3600000, coalesce((SELECT keep_done FROM elsewhere_queue WHERE name = :queue), 0)))
)
ON CONFLICT (id) DO UPDATE
SET value = excluded.value, expires_at = excluded.expires_at

-- step: SaveTaskResults
INSERT INTO elsewhere_result (id, value, expires_at)
SELECT
    value ->> 0, value ->> 1,
    :now + coalesce(
        r.value ->> 3, max(3600000, coalesce((SELECT keep_done FROM elsewhere_queue WHERE name = r.value ->> 2), 0))
    )
FROM json_each(:results) AS r
WHERE true
ON CONFLICT (id) DO UPDATE
SET value = excluded.value, expires_at = excluded.expires_at

-- name: GetResult
SELECT value FROM elsewhere_result WHERE id = :id AND expires_at > :now

-- name: AwaitResult
SELECT r.value, t.queue, t.stored_state = 'dead', t.reason, t.error, t.code
FROM
    (SELECT 1) AS one
    LEFT JOIN elsewhere_result AS r ON r.id = :id AND r.expires_at > :now
    LEFT JOIN elsewhere_task_now AS t ON t.id = :task AND t.state = 'dead'

-- name: ResultAhead
SELECT
    EXISTS (SELECT 1 FROM elsewhere_result WHERE id = :id AND expires_at > :now) OR coalesce(t.state = 'dead', 0),
    CASE
        WHEN t.state = 'leased' THEN t.lease_expires_at
        WHEN t.state IN ('scheduled', 'ready') THEN t.expires_at
    END,
    :now
FROM (SELECT 1) AS one LEFT JOIN elsewhere_task_now AS t ON t.id = :task

-- name: ReadClock
SELECT :now

-- step: WriteSchedule
INSERT INTO elsewhere_schedule AS s (
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
FROM elsewhere_schedule
WHERE name = :name

-- step: RewriteSchedule
UPDATE elsewhere_schedule
SET
    timing = :when, zone = :tz, queue = :queue, payload = :payload, headers = :headers, priority = :priority,
    expires = :expires, max_attempts = :max_attempts, catch_up = :catch_up, next_at = :next_at,
    timed_at = iif(next_at = :next_at, timed_at, :now)
WHERE name = :name

-- name: RemoveSchedule
DELETE FROM elsewhere_schedule WHERE name = :name RETURNING name

-- name: GetSchedule
SELECT
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, last_at,
    fired, skipped
FROM elsewhere_schedule
WHERE name = :name

-- name: ListSchedules
SELECT
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, last_at,
    fired, skipped
FROM elsewhere_schedule
ORDER BY name

-- name: ReadSoonest
SELECT min(next_at) FROM elsewhere_schedule

-- name: SchedulesAhead
SELECT
    coalesce(soonest <= now, false)
    OR EXISTS (SELECT 1 FROM elsewhere_schedule WHERE timed_at > :now + 1000 AND next_at IS NOT NULL),
    soonest,
    now
FROM (SELECT :now AS now, (SELECT min(next_at) FROM elsewhere_schedule) AS soonest)

-- name: Tick
SELECT
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at,
    coalesce(:moment, :now)
FROM elsewhere_schedule
WHERE
    next_at <= coalesce(:moment, :now)
    OR :moment IS NULL AND timed_at > :now + 1000 AND next_at IS NOT NULL
ORDER BY next_at
LIMIT :limit

-- step: EnqueueFires
INSERT INTO elsewhere_task (
    queue, payload, headers, priority, max_attempts, state, run_at, wake_at, expires_at, enqueued_at
)
SELECT
    queue, payload, headers, priority, max_attempts,
    CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
    due,
    CASE WHEN due > now THEN min(due, coalesce(expires, due)) ELSE expires END,
    expires,
    now
FROM (
    SELECT
        value ->> 0 AS queue, value ->> 1 AS payload, value ->> 2 AS headers, value ->> 3 AS priority,
        value ->> 4 AS max_attempts, value ->> 5 AS due, value ->> 6 AS expires, now
    FROM (SELECT :now AS now), json_each(:tasks)
)
RETURNING id

-- step: MoveSchedules
UPDATE elsewhere_schedule
SET
    next_at = value ->> 1, last_at = coalesce(value ->> 2, last_at),
    fired = fired + (value ->> 3), skipped = skipped + (value ->> 4), timed_at = :now
FROM json_each(:moves)
WHERE name = value ->> 0
