-- Results.

-- name: SaveResult
INSERT INTO eventkit_result (id, value, expires_at)
VALUES (:id, :value, :now + :ttl)
ON CONFLICT (id) DO UPDATE
SET value = excluded.value, expires_at = excluded.expires_at

-- name: SaveTaskResult
INSERT INTO eventkit_result (id, value, expires_at)
VALUES (
    :id, :value,
    :now + coalesce(:ttl, max(3600000, coalesce((SELECT keep_done FROM eventkit_queue WHERE name = :queue), 0)))
)
ON CONFLICT (id) DO UPDATE
SET value = excluded.value, expires_at = excluded.expires_at

-- step: SaveTaskResults
INSERT INTO eventkit_result (id, value, expires_at)
SELECT
    value ->> 0, value ->> 1,
    :now + coalesce(
        r.value ->> 3, max(3600000, coalesce((SELECT keep_done FROM eventkit_queue WHERE name = r.value ->> 2), 0))
    )
FROM json_each(:results) AS r
WHERE true
ON CONFLICT (id) DO UPDATE
SET value = excluded.value, expires_at = excluded.expires_at

-- name: GetResult
SELECT value FROM eventkit_result WHERE id = :id AND expires_at > :now

-- name: AwaitResult
SELECT r.value, t.queue, t.stored_state = 'dead', t.reason, t.error, t.code
FROM
    (SELECT 1) AS one
    LEFT JOIN eventkit_result AS r ON r.id = :id AND r.expires_at > :now
    LEFT JOIN eventkit_task_now AS t ON t.id = :task AND t.state = 'dead'

-- A task dies by the clock when it expires, or when its lease ends.
-- name: ResultAhead
SELECT
    EXISTS (SELECT 1 FROM eventkit_result WHERE id = :id AND expires_at > :now) OR coalesce(t.state = 'dead', 0),
    CASE
        WHEN t.state = 'leased' THEN t.lease_expires_at
        WHEN t.state IN ('scheduled', 'ready') THEN t.expires_at
    END,
    :now
FROM (SELECT 1) AS one LEFT JOIN eventkit_task_now AS t ON t.id = :task
