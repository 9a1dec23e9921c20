-- Ending claims.  The token and the lease fence every statement that takes a token: once wake_at has passed,
-- the worker has lost the task, even if no other process has promoted it yet.

-- name: Ack
DELETE FROM eventkit_task
WHERE
    id = :id AND token = :token AND state = 'leased' AND wake_at > :now AND key IS NULL
    AND NOT EXISTS (SELECT 1 FROM eventkit_queue WHERE name = queue AND keep_done IS NOT NULL)
RETURNING id

-- name: AckMany
DELETE FROM eventkit_task
WHERE
    (id, token) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:held))
    AND state = 'leased' AND wake_at > :now AND key IS NULL
    AND NOT EXISTS (SELECT 1 FROM eventkit_queue WHERE name = queue AND keep_done IS NOT NULL)
RETURNING id

-- step: MarkDone
UPDATE eventkit_task
SET state = 'done', result = held.result, finished_at = :now, wake_at = NULL, token = NULL
FROM (SELECT value ->> 0 AS id, value ->> 1 AS token, value ->> 2 AS result FROM json_each(:held)) AS held
WHERE
    eventkit_task.id = held.id AND eventkit_task.token = held.token
    AND state = 'leased' AND wake_at > :now
RETURNING id, (SELECT q.keep_done FROM eventkit_queue AS q WHERE q.name = eventkit_task.queue) IS NOT NULL

-- Deletes one more than the call has finished, so that the backlog shrinks.  CROSS JOIN makes SQLite read the
-- queue first, so that the index finds only finished tasks.
-- step: ForgetDone
DELETE FROM eventkit_task
WHERE id IN (
    SELECT t.id
    FROM eventkit_queue AS q CROSS JOIN eventkit_task AS t ON t.queue = q.name
    WHERE
        q.name IN (SELECT queue FROM eventkit_task WHERE id IN (SELECT value FROM json_each(:ids)))
        AND t.state = 'done' AND t.finished_at IS NOT NULL AND t.finished_at <= :now - q.keep_done
    LIMIT 1 + json_array_length(:ids)
)

-- step: Revoke
UPDATE eventkit_task
SET token = NULL
WHERE id = :id

-- step: DeleteTasks
DELETE FROM eventkit_task
WHERE id IN (SELECT value FROM json_each(:ids))

-- step: ReserveKeys
INSERT INTO eventkit_key (queue, key, task_id, reserved_until, payload)
SELECT
    t.queue, t.key, t.id, t.enqueued_at + coalesce(q.key_ttl, 86400000), CASE WHEN q.strict_keys THEN t.payload END
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
WHERE
    t.id IN (SELECT value FROM json_each(:ids))
    AND t.key IS NOT NULL AND t.enqueued_at + coalesce(q.key_ttl, 86400000) > :now
ON CONFLICT (queue, key) DO UPDATE
SET task_id = excluded.task_id, reserved_until = excluded.reserved_until, payload = excluded.payload

-- step: ForgetKeys
DELETE FROM eventkit_key
WHERE (queue, key) IN (
    SELECT queue, key FROM eventkit_key
    WHERE reserved_until <= :now
    ORDER BY reserved_until
    LIMIT :limit
)
RETURNING 1

-- The claim itself detects poison, so it still holds the lease, however short.
-- step: MarkDead
UPDATE eventkit_task
SET
    state = 'dead', reason = :reason, error = :error, code = coalesce(:code, upper(:reason)), finished_at = :now,
    wake_at = NULL, token = NULL, lapsed = 0
WHERE id = :id AND token = :token AND state = 'leased' AND (wake_at > :now OR :reason = 'poison')
RETURNING queue

-- step: CopyDead
INSERT INTO eventkit_task (queue, payload, headers, priority)
SELECT q.dead_letter_to, t.payload, t.headers, t.priority
FROM eventkit_task AS t JOIN eventkit_queue AS q ON q.name = t.queue
WHERE t.id IN (SELECT value FROM json_each(:ids)) AND q.dead_letter_to IS NOT NULL AND t.state = 'dead'

-- step: ReadHeld
SELECT t.attempt, coalesce(t.max_attempts, q.max_attempts, 3), q.retry
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
WHERE t.id = :id AND t.token = :token AND t.state = 'leased' AND t.wake_at > :now

-- step: Postpone
UPDATE eventkit_task
SET
    state = CASE WHEN :delay > 0 THEN 'scheduled' ELSE 'ready' END,
    run_at = :now + :delay,
    wake_at = CASE WHEN :delay > 0 THEN min(:now + :delay, coalesce(expires_at, :now + :delay)) ELSE expires_at END,
    error = :error, code = :code, token = NULL, lapsed = 0
WHERE id = :id AND token = :token

-- name: Release
UPDATE eventkit_task
SET state = 'ready', attempt = attempt - 1, wake_at = expires_at, token = NULL
WHERE id = :id AND token = :token AND state = 'leased' AND wake_at > :now
RETURNING id

-- name: Snooze
UPDATE eventkit_task
SET
    state = CASE WHEN :delay > 0 THEN 'scheduled' ELSE 'ready' END,
    attempt = attempt - 1,
    run_at = :now + :delay,
    wake_at = CASE WHEN :delay > 0 THEN min(:now + :delay, coalesce(expires_at, :now + :delay)) ELSE expires_at END,
    token = NULL, lapsed = 0
WHERE id = :id AND token = :token AND state = 'leased' AND wake_at > :now
RETURNING id

-- name: ReleaseMany
UPDATE eventkit_task
SET state = 'ready', attempt = attempt - 1, wake_at = expires_at, token = NULL
WHERE
    (id, token) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:held))
    AND state = 'leased' AND wake_at > :now

-- name: Extend
UPDATE eventkit_task
SET wake_at = :now + :lease
WHERE id = :id AND token = :token AND state = 'leased' AND wake_at > :now
RETURNING id

-- name: ExtendMany
UPDATE eventkit_task
SET wake_at = max(wake_at, :now + :lease)
WHERE
    (id, token) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:held))
    AND state = 'leased' AND wake_at > :now
RETURNING id
