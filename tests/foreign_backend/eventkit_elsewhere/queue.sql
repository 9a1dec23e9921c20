-- Queues: enqueueing, claiming, ending claims, inspecting and configuring.  A task has no group here, and no history.

-- name: Enqueue
INSERT INTO elsewhere_task (queue, payload, headers, priority, max_attempts)
SELECT :queue, :payload, :headers, :priority, :max_attempts
WHERE NOT EXISTS (
    SELECT 1 FROM elsewhere_queue
    WHERE name = :queue AND (max_bytes IS NOT NULL OR enqueue_rate IS NOT NULL OR max_size IS NOT NULL AND max_size <= (
        (SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state = 'ready')
        + (SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state IN ('scheduled', 'leased') AND wake_at IS NOT NULL)
    ))
)
RETURNING id

-- name: EnqueuePlain
INSERT INTO elsewhere_task (queue, payload)
SELECT :queue, value
FROM json_each(:payloads)
WHERE NOT EXISTS (SELECT 1 FROM elsewhere_queue WHERE name = :queue AND (max_size IS NOT NULL OR max_bytes IS NOT NULL OR enqueue_rate IS NOT NULL))
RETURNING id

-- name: EnqueueMany
INSERT INTO elsewhere_task (
    queue, payload, headers, priority, max_attempts, key, state, run_at, wake_at, expires_at, enqueued_at
)
SELECT
    :queue, payload, headers, priority, max_attempts, key,
    CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
    due,
    CASE WHEN due > now THEN min(due, coalesce(expires, due)) ELSE expires END,
    expires,
    now
FROM (
    SELECT
        value ->> 0 AS payload, value ->> 1 AS headers, value ->> 2 AS priority, value ->> 3 AS max_attempts,
        value ->> 4 AS key,
        coalesce(now + (value ->> 5), value ->> 6, now) AS due,
        coalesce(now + (value ->> 7), value ->> 8) AS expires,
        now
    FROM (SELECT :now AS now), json_each(:tasks)
)
WHERE true
ON CONFLICT (queue, key) WHERE key IS NOT NULL AND state <> 'done' DO NOTHING
RETURNING id, key

-- This one always leaves it to the plan to add the tasks queue by queue.
-- name: EnqueueAll
SELECT 1 WHERE false AND :tasks

-- step: FindKeys
SELECT t.key, t.id, CASE WHEN q.strict_keys THEN CAST(t.payload AS BLOB) END
FROM elsewhere_task AS t LEFT JOIN elsewhere_queue AS q ON q.name = t.queue
WHERE t.queue = :queue AND t.state <> 'done' AND t.key IN (SELECT value FROM json_each(:keys))
UNION ALL
SELECT k.key, k.task_id, CASE WHEN q.strict_keys THEN CAST(k.payload AS BLOB) END
FROM elsewhere_key AS k LEFT JOIN elsewhere_queue AS q ON q.name = k.queue
WHERE
    k.queue = :queue AND k.key IN (SELECT value FROM json_each(:keys))
    AND NOT EXISTS (SELECT 1 FROM elsewhere_task AS t WHERE t.queue = k.queue AND t.key = k.key AND t.state <> 'done')

-- step: ReadRoom
SELECT
    max_size, CASE WHEN max_size IS NOT NULL THEN (
        (SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state = 'ready')
        + (SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state IN ('scheduled', 'leased') AND wake_at IS NOT NULL)
    ) END, max_bytes,
    enqueue_rate, enqueue_burst, enqueue_tokens, enqueue_refilled_at, :now
FROM elsewhere_queue
WHERE name = :queue AND (max_size IS NOT NULL OR max_bytes IS NOT NULL OR enqueue_rate IS NOT NULL)

-- step: SpendEnqueueTokens
UPDATE elsewhere_queue
SET enqueue_tokens = :tokens, enqueue_refilled_at = :refilled_at
WHERE name = :queue

-- name: RoomAhead
SELECT
    CASE WHEN max_size IS NOT NULL THEN max_size >= :count + (
        (SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state = 'ready')
        + (SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state IN ('scheduled', 'leased') AND wake_at IS NOT NULL)
    ) ELSE 1 END,
    enqueue_rate, enqueue_burst, enqueue_tokens, enqueue_refilled_at, :now
FROM (SELECT 1) AS one LEFT JOIN elsewhere_queue ON name = :queue

-- step: ReadGate
SELECT
    coalesce(q.paused, 0), coalesce(q.lease, 300000), coalesce(q.max_attempts, 3),
    q.rate, q.burst, q.tokens, q.refilled_at, q.max_running,
    CASE WHEN q.max_running IS NOT NULL THEN (
        SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state = 'leased' AND wake_at > now
    ) END,
    NULL,
    EXISTS (
        SELECT 1 FROM elsewhere_task
        WHERE queue = :queue AND state IN ('scheduled', 'leased', 'ready') AND wake_at <= now
    ),
    now
FROM (SELECT :now AS now) LEFT JOIN elsewhere_queue AS q ON q.name = :queue

-- step: UpdateDue
UPDATE elsewhere_task
SET
    state = now.state,
    reason = CASE WHEN now.state = 'dead' THEN iif(expired, 'expired', 'exhausted') END,
    error = CASE
        WHEN now.stored_state = 'leased'
        THEN 'the lease of worker ' || elsewhere_task.worker || ' ran out in attempt ' || elsewhere_task.attempt
        ELSE elsewhere_task.error
    END,
    code = CASE
        WHEN expired AND now.state = 'dead' THEN 'EXPIRED'
        WHEN now.stored_state = 'leased' THEN 'LEASE_LOST'
        ELSE code
    END,
    finished_at = CASE WHEN now.state = 'dead' THEN :now END,
    wake_at = CASE WHEN now.state = 'ready' THEN elsewhere_task.expires_at END,
    token = NULL,
    lapsed = lapsed OR now.stored_state = 'leased'
FROM (
    SELECT id, state, stored_state, expires_at <= :now AS expired
    FROM elsewhere_task_now
    WHERE queue = :queue AND stored_state IN ('scheduled', 'leased', 'ready') AND wake_at <= :now
    ORDER BY priority DESC, run_at, id
    LIMIT :limit
) AS now
WHERE elsewhere_task.id = now.id
RETURNING id, state

-- name: TakeFirst
UPDATE elsewhere_task
SET
    state = 'leased', attempt = attempt + 1, worker = :worker, token = :token, claimed_at = :now,
    wake_at = :now + coalesce(:lease, (SELECT lease FROM elsewhere_queue WHERE name = :queue), 300000)
WHERE id IN (
    SELECT id FROM elsewhere_task
    WHERE queue = :queue AND state = 'ready'
    ORDER BY priority DESC, run_at, id
    LIMIT CASE
        WHEN EXISTS (
            SELECT 1 FROM elsewhere_queue
            WHERE name = :queue AND (paused OR rate IS NOT NULL OR max_running IS NOT NULL)
        ) OR EXISTS (
            SELECT 1 FROM elsewhere_task
            WHERE queue = :queue AND state IN ('scheduled', 'leased', 'ready') AND wake_at <= :now
        )
        THEN 0
        ELSE :limit
    END
)
RETURNING
    id, queue, CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB), priority, attempt,
    coalesce(max_attempts, (SELECT max_attempts FROM elsewhere_queue WHERE name = :queue), 3),
    run_at, enqueued_at, expires_at, wake_at, token, wake_at - claimed_at, lapsed

-- step: Lease
UPDATE elsewhere_task
SET
    state = 'leased', attempt = attempt + 1, worker = :worker, token = :token,
    claimed_at = :now, wake_at = :now + :lease
WHERE id IN (
    SELECT id FROM elsewhere_task
    WHERE queue = :queue AND state = 'ready' AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY priority DESC, run_at, id
    LIMIT :limit
)
RETURNING
    id, queue, CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB), priority, attempt,
    coalesce(max_attempts, :max_attempts), run_at, enqueued_at, expires_at, wake_at, token, :lease, lapsed

-- step: SpendTokens
UPDATE elsewhere_queue
SET tokens = :tokens, refilled_at = :refilled_at
WHERE name = :queue

-- name: TasksAhead
SELECT
    coalesce(q.paused, 0), coalesce(q.lease, 300000), coalesce(q.max_attempts, 3),
    q.rate, q.burst, q.tokens, q.refilled_at, q.max_running,
    CASE WHEN q.max_running IS NOT NULL THEN (
        SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state = 'leased' AND wake_at > now
    ) END,
    NULL,
    coalesce(wake_at <= now, 0),
    now,
    EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND state = 'ready'),
    wake_at,
    NULL
FROM (
    SELECT :now AS now, min(wake_at) AS wake_at
    FROM (
        SELECT min(wake_at) AS wake_at FROM elsewhere_task WHERE queue = :queue AND state = 'scheduled' AND wake_at IS NOT NULL
        UNION ALL
        SELECT min(wake_at) FROM elsewhere_task WHERE queue = :queue AND state = 'leased' AND wake_at IS NOT NULL
        UNION ALL
        SELECT min(wake_at) FROM elsewhere_task WHERE queue = :queue AND state = 'ready' AND wake_at IS NOT NULL
    )
) LEFT JOIN elsewhere_queue AS q ON q.name = :queue

-- name: Ack
DELETE FROM elsewhere_task
WHERE
    id = :id AND token = :token AND state = 'leased' AND wake_at > :now AND key IS NULL
    AND NOT EXISTS (SELECT 1 FROM elsewhere_queue WHERE name = queue AND keep_done IS NOT NULL)
RETURNING id

-- name: AckMany
DELETE FROM elsewhere_task
WHERE
    (id, token) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:held))
    AND state = 'leased' AND wake_at > :now AND key IS NULL
    AND NOT EXISTS (SELECT 1 FROM elsewhere_queue WHERE name = queue AND keep_done IS NOT NULL)
RETURNING id

-- step: MarkDone
UPDATE elsewhere_task
SET state = 'done', result = held.result, finished_at = :now, wake_at = NULL, token = NULL
FROM (SELECT value ->> 0 AS id, value ->> 1 AS token, value ->> 2 AS result FROM json_each(:held)) AS held
WHERE
    elsewhere_task.id = held.id AND elsewhere_task.token = held.token
    AND state = 'leased' AND wake_at > :now
RETURNING id, (SELECT q.keep_done FROM elsewhere_queue AS q WHERE q.name = elsewhere_task.queue) IS NOT NULL

-- step: ForgetDone
DELETE FROM elsewhere_task
WHERE id IN (
    SELECT t.id
    FROM elsewhere_queue AS q CROSS JOIN elsewhere_task AS t ON t.queue = q.name
    WHERE
        q.name IN (SELECT queue FROM elsewhere_task WHERE id IN (SELECT value FROM json_each(:ids)))
        AND t.state = 'done' AND t.finished_at IS NOT NULL AND t.finished_at <= :now - q.keep_done
    LIMIT 1 + json_array_length(:ids)
)

-- step: Revoke
UPDATE elsewhere_task
SET token = NULL
WHERE id = :id

-- step: DeleteTasks
DELETE FROM elsewhere_task
WHERE id IN (SELECT value FROM json_each(:ids))

-- step: ReserveKeys
INSERT INTO elsewhere_key (queue, key, task_id, reserved_until, payload)
SELECT
    t.queue, t.key, t.id, t.enqueued_at + coalesce(q.key_ttl, 86400000), CASE WHEN q.strict_keys THEN t.payload END
FROM elsewhere_task AS t LEFT JOIN elsewhere_queue AS q ON q.name = t.queue
WHERE
    t.id IN (SELECT value FROM json_each(:ids))
    AND t.key IS NOT NULL AND t.enqueued_at + coalesce(q.key_ttl, 86400000) > :now
ON CONFLICT (queue, key) DO UPDATE
SET task_id = excluded.task_id, reserved_until = excluded.reserved_until, payload = excluded.payload

-- step: ForgetKeys
DELETE FROM elsewhere_key
WHERE (queue, key) IN (
    SELECT queue, key FROM elsewhere_key
    WHERE reserved_until <= :now
    ORDER BY reserved_until
    LIMIT :limit
)
RETURNING 1

-- step: MarkDead
UPDATE elsewhere_task
SET
    state = 'dead', reason = :reason, error = :error, code = coalesce(:code, upper(:reason)), finished_at = :now,
    wake_at = NULL, token = NULL, lapsed = 0
WHERE id = :id AND token = :token AND state = 'leased' AND (wake_at > :now OR :reason = 'poison')
RETURNING queue

-- step: CopyDead
INSERT INTO elsewhere_task (queue, payload, headers, priority)
SELECT q.dead_letter_to, t.payload, t.headers, t.priority
FROM elsewhere_task AS t JOIN elsewhere_queue AS q ON q.name = t.queue
WHERE t.id IN (SELECT value FROM json_each(:ids)) AND q.dead_letter_to IS NOT NULL AND t.state = 'dead'

-- step: ReadHeld
SELECT t.attempt, coalesce(t.max_attempts, q.max_attempts, 3), q.retry
FROM elsewhere_task AS t LEFT JOIN elsewhere_queue AS q ON q.name = t.queue
WHERE t.id = :id AND t.token = :token AND t.state = 'leased' AND t.wake_at > :now

-- step: Postpone
UPDATE elsewhere_task
SET
    state = CASE WHEN :delay > 0 THEN 'scheduled' ELSE 'ready' END,
    run_at = :now + :delay,
    wake_at = CASE WHEN :delay > 0 THEN min(:now + :delay, coalesce(expires_at, :now + :delay)) ELSE expires_at END,
    error = :error, code = :code, token = NULL, lapsed = 0
WHERE id = :id AND token = :token

-- name: Release
UPDATE elsewhere_task
SET state = 'ready', attempt = attempt - 1, wake_at = expires_at, token = NULL
WHERE id = :id AND token = :token AND state = 'leased' AND wake_at > :now
RETURNING id

-- name: Snooze
UPDATE elsewhere_task
SET
    state = CASE WHEN :delay > 0 THEN 'scheduled' ELSE 'ready' END,
    attempt = attempt - 1,
    run_at = :now + :delay,
    wake_at = CASE WHEN :delay > 0 THEN min(:now + :delay, coalesce(expires_at, :now + :delay)) ELSE expires_at END,
    token = NULL, lapsed = 0
WHERE id = :id AND token = :token AND state = 'leased' AND wake_at > :now
RETURNING id

-- name: ReleaseMany
UPDATE elsewhere_task
SET state = 'ready', attempt = attempt - 1, wake_at = expires_at, token = NULL
WHERE
    (id, token) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:held))
    AND state = 'leased' AND wake_at > :now

-- name: Extend
UPDATE elsewhere_task
SET wake_at = :now + :lease
WHERE id = :id AND token = :token AND state = 'leased' AND wake_at > :now
RETURNING id

-- name: ExtendMany
UPDATE elsewhere_task
SET wake_at = max(wake_at, :now + :lease)
WHERE
    (id, token) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:held))
    AND state = 'leased' AND wake_at > :now
RETURNING id

-- part: info
    id, queue, state, CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB), priority, attempt, max_attempts,
    run_at, enqueued_at, expires_at, lease_expires_at, worker, claimed_at, finished_at, reason, error, code, result, NULL

-- name: GetTask
SELECT :info FROM elsewhere_task_now WHERE queue = :queue AND id = :id

-- name: FindTokens
SELECT id, queue, coalesce(token, 0) FROM elsewhere_task WHERE id IN (SELECT value FROM json_each(:ids))

-- name: ListTasks
SELECT :info
FROM elsewhere_task_now
WHERE queue = :queue AND id > :after AND (:state IS NULL OR state = :state) AND :group IS NULL
ORDER BY id
LIMIT :limit

-- name: PeekTasks
SELECT :info
FROM (
    SELECT * FROM (
        SELECT * FROM elsewhere_task_now
        WHERE queue = :queue AND stored_state = 'ready' AND state = 'ready'
        ORDER BY priority DESC, run_at, id
        LIMIT :limit
    )
    UNION ALL
    SELECT * FROM elsewhere_task_now
    WHERE queue = :queue AND stored_state IN ('scheduled', 'leased') AND wake_at <= :now AND state = 'ready'
)
ORDER BY priority DESC, run_at, id
LIMIT :limit

-- name: ListDead
SELECT :info
FROM elsewhere_task_now
WHERE queue = :queue AND stored_state = 'dead' AND finished_at IS NOT NULL
ORDER BY finished_at DESC, id DESC
LIMIT :limit

-- name: ListDeadByError
SELECT reason, code, error, count(*), min(finished_at), max(finished_at), max(id)
FROM elsewhere_task
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL
GROUP BY reason, code, error
ORDER BY count(*) DESC, max(id) DESC
LIMIT :limit

-- name: ReadSize
SELECT
    (SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state = 'ready')
    + (SELECT count(*) FROM elsewhere_task WHERE queue = :queue AND state IN ('scheduled', 'leased') AND wake_at IS NOT NULL)

-- name: ReadNextDue
SELECT min(moment)
FROM (
    SELECT min(run_at) AS moment FROM elsewhere_task WHERE queue = :queue AND state = 'ready'
    UNION ALL
    SELECT min(wake_at) FROM elsewhere_task WHERE queue = :queue AND state = 'scheduled' AND wake_at IS NOT NULL
    UNION ALL
    SELECT min(wake_at) FROM elsewhere_task WHERE queue = :queue AND state = 'leased' AND wake_at IS NOT NULL
)

-- step: FindToCancel
SELECT state = 'leased'
FROM elsewhere_task_now
WHERE queue = :queue AND id = :id AND (state IN ('scheduled', 'ready') OR state = 'leased' AND :running)

-- name: Purge
DELETE FROM elsewhere_task
WHERE queue = :queue AND state = :state AND (:older_than IS NULL OR finished_at <= :now - :older_than)
RETURNING NULL

-- step: ReserveKeysOfState
INSERT INTO elsewhere_key (queue, key, task_id, reserved_until, payload)
SELECT
    t.queue, t.key, t.id, t.enqueued_at + coalesce(q.key_ttl, 86400000), CASE WHEN q.strict_keys THEN t.payload END
FROM elsewhere_task AS t LEFT JOIN elsewhere_queue AS q ON q.name = t.queue
WHERE
    t.queue = :queue AND t.state = :state AND t.state <> 'done'
    AND (:older_than IS NULL OR t.finished_at <= :now - :older_than)
    AND t.key IS NOT NULL AND t.enqueued_at + coalesce(q.key_ttl, 86400000) > :now
ON CONFLICT (queue, key) DO UPDATE
SET task_id = excluded.task_id, reserved_until = excluded.reserved_until, payload = excluded.payload

-- name: Requeue
UPDATE elsewhere_task
SET
    state = 'ready', attempt = 0, run_at = :now, wake_at = NULL, expires_at = NULL,
    worker = NULL, claimed_at = NULL, finished_at = NULL, reason = NULL, error = NULL, code = NULL, lapsed = 0
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL AND (:every OR id IN (SELECT value FROM json_each(:ids)))
RETURNING id

-- name: SetPaused
INSERT INTO elsewhere_queue (name, paused)
VALUES (:queue, :paused)
ON CONFLICT (name) DO UPDATE
SET paused = excluded.paused

-- step: AddQueue
INSERT INTO elsewhere_queue (name)
SELECT :queue
WHERE
    NOT EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND state = 'ready')
    AND NOT EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND wake_at IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND finished_at IS NOT NULL)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: FindQueue
SELECT 1
WHERE
    EXISTS (SELECT 1 FROM elsewhere_queue WHERE name = :queue)
    OR EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND state = 'ready')
    OR EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND wake_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND finished_at IS NOT NULL)

-- step: HoldSettings
INSERT INTO elsewhere_queue (name) VALUES (:queue) ON CONFLICT (name) DO NOTHING

-- name: ReadSettings
SELECT
    max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl, dead_letter_to, NULL,
    max_bytes, strict_keys, enqueue_rate, enqueue_burst,
    NULL, NULL, NULL, NULL, NULL, NULL
FROM elsewhere_queue
WHERE name = :queue

-- step: WriteSettings
INSERT INTO elsewhere_queue (
    name, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl, dead_letter_to,
    max_bytes, strict_keys, enqueue_rate, enqueue_burst
)
VALUES (
    :queue, :max_attempts, :lease, :retry, :max_size, :rate, :burst, :max_running, :keep_done, :keep_dead, :key_ttl,
    :dead_letter_to, :max_bytes, :strict_keys, :enqueue_rate, :enqueue_burst
)
ON CONFLICT (name) DO UPDATE
SET
    max_attempts = excluded.max_attempts, lease = excluded.lease, retry = excluded.retry,
    max_size = excluded.max_size, rate = excluded.rate, burst = excluded.burst,
    max_running = excluded.max_running, keep_done = excluded.keep_done, keep_dead = excluded.keep_dead,
    key_ttl = excluded.key_ttl, dead_letter_to = excluded.dead_letter_to,
    max_bytes = excluded.max_bytes, strict_keys = excluded.strict_keys,
    enqueue_rate = excluded.enqueue_rate, enqueue_burst = excluded.enqueue_burst,
    tokens = CASE WHEN rate IS excluded.rate AND burst IS excluded.burst THEN tokens END,
    enqueue_tokens = CASE
        WHEN enqueue_rate IS excluded.enqueue_rate AND enqueue_burst IS excluded.enqueue_burst THEN enqueue_tokens
    END

-- step: Exhaust
UPDATE elsewhere_task
SET state = 'dead', reason = 'exhausted', code = coalesce(code, 'EXHAUSTED'), finished_at = :now, wake_at = NULL
WHERE
    queue = :queue AND attempt >= :most AND max_attempts IS NULL AND (expires_at IS NULL OR expires_at > :now)
    AND id IN (
        SELECT id FROM elsewhere_task WHERE queue = :queue AND state = 'ready'
        UNION ALL
        SELECT id FROM elsewhere_task WHERE queue = :queue AND state = 'scheduled' AND wake_at IS NOT NULL
    )
RETURNING id

-- step: FindTasks
SELECT 1
WHERE
    EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND state = 'ready')
    OR EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND state IN ('scheduled', 'leased') AND wake_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM elsewhere_task WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL)

-- step: DropTasks
DELETE FROM elsewhere_task WHERE queue = :queue

-- step: DropKeysOfQueue
DELETE FROM elsewhere_key WHERE queue = :queue

-- step: DropSettings
DELETE FROM elsewhere_queue WHERE name = :queue

-- step: Abandon
UPDATE elsewhere_task SET token = NULL WHERE queue = :queue AND state = 'leased'

-- name: ConfigureStream
INSERT INTO elsewhere_topic (name, keep, keep_count, keep_unconsumed)
VALUES (:topic, :keep, :keep_count, :keep_unconsumed)
ON CONFLICT (name) DO UPDATE
SET
    keep = iif('keep' IN (SELECT value FROM json_each(:given)), excluded.keep, keep),
    keep_count = iif('keep_count' IN (SELECT value FROM json_each(:given)), excluded.keep_count, keep_count),
    keep_unconsumed = iif(
        'keep_unconsumed' IN (SELECT value FROM json_each(:given)), excluded.keep_unconsumed, keep_unconsumed
    )

-- name: ReadStreamSettings
SELECT keep, keep_count, keep_unconsumed FROM elsewhere_topic WHERE name = :topic

-- name: ConfigureChannel
INSERT INTO elsewhere_channel (name, keep, keep_count)
VALUES (
    :channel, iif('keep' IN (SELECT value FROM json_each(:given)), :keep, 86400000), :keep_count
)
ON CONFLICT (name) DO UPDATE
SET
    keep = iif('keep' IN (SELECT value FROM json_each(:given)), excluded.keep, keep),
    keep_count = iif('keep_count' IN (SELECT value FROM json_each(:given)), excluded.keep_count, keep_count)

-- name: ReadChannelSettings
SELECT keep, keep_count FROM elsewhere_channel WHERE name = :channel

-- name: ReadStats
SELECT json_array(
    coalesce(sum(state = 'scheduled'), 0), coalesce(sum(state = 'ready'), 0), coalesce(sum(state = 'leased'), 0),
    coalesce(sum(state = 'dead'), 0), coalesce(sum(state = 'done'), 0), 0, 0, 0, 0,
    :now - min(run_at) FILTER (WHERE state = 'ready'),
    coalesce((SELECT paused FROM elsewhere_queue WHERE name = :queue), 0)
)
FROM (SELECT state, run_at FROM elsewhere_task_now WHERE queue = :queue LIMIT 10 * :limit)

-- step: HoldHistory
SELECT :history, 0, 'this backend keeps no history of tasks: leave history= out'

-- No queue is ordered here, and none limits its groups.

-- step: ReadOrdered
SELECT 1 WHERE false AND :queue

-- step: DropGroupRates
SELECT 1 WHERE false AND :queue
