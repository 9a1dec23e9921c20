-- Inspecting, clearing and configuring queues.
--
-- The view eventkit_task_now shows a due task in the state that Promote would give it.

-- part: info
    id, queue, state, payload::text, key, headers::text, priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(lease_expires_at),
    worker, eventkit_ms(claimed_at), eventkit_ms(finished_at), reason, error, code, result::text, group_key

-- name: FindTokens
SELECT id, queue, coalesce(token, 0) FROM eventkit_task WHERE id = ANY (:ids::bigint[])

-- name: ListDeadByError
SELECT reason, code, error, count(*), eventkit_ms(min(finished_at)), eventkit_ms(max(finished_at)), max(id)
FROM eventkit_task
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL
GROUP BY reason, code, error
ORDER BY count(*) DESC, max(id) DESC
LIMIT :limit

-- part: counts
    (
        SELECT json_build_array(
            scheduled, ready, leased, dead, done, due, due_ready, was_ready, due_dead, age, paused
        )::text
        FROM eventkit_counts(q.name, :limit)
    )

-- name: ReadStats
SELECT :counts FROM (SELECT :queue::text AS name) AS q

-- name: ReadSize
SELECT eventkit_size(:queue)

-- name: ReadNextDue
SELECT eventkit_ms(min(moment))
FROM :due_moments

-- name: Cancel
SELECT 1 WHERE eventkit_cancel(:queue, :id, :running::boolean)

-- Rows locked by another transaction are skipped, so that a caller that has promoted due tasks does not wait.
-- Tasks added after the keys were reserved are left for the next call.
-- name: Purge
DELETE FROM eventkit_task
WHERE id = ANY (ARRAY(
    SELECT id FROM eventkit_task AS t
    WHERE
        queue = :queue AND state = :state
        AND (:older_than::bigint IS NULL OR finished_at <= :now - :older_than::bigint * interval '1 ms')
        AND NOT EXISTS (
            SELECT FROM eventkit_key AS k
            WHERE k.queue = t.queue AND k.key = t.key AND k.task_id = t.id AND k.reserved_until = 'infinity'
        )
    FOR UPDATE SKIP LOCKED
))
RETURNING eventkit_wake('task', queue)

-- The key of a done task was reserved when it finished, and may belong to another task by now.  Only a transaction
-- that has locked the task changes its key, so the tasks are locked first.
-- step: ReserveKeysOfState
WITH held AS MATERIALIZED (
    SELECT queue, key, id, enqueued_at, payload FROM eventkit_task
    WHERE
        queue = :queue AND state = :state AND state <> 'done'
        AND (:older_than::bigint IS NULL OR finished_at <= :now - :older_than::bigint * interval '1 ms')
    FOR UPDATE SKIP LOCKED
)
UPDATE eventkit_key AS k
SET
    reserved_until = t.enqueued_at + coalesce(q.key_ttl, 86400000) * interval '1 ms',
    payload = CASE WHEN q.strict_keys THEN t.payload END
FROM held AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
WHERE
    k.queue = t.queue AND k.key = t.key AND k.task_id = t.id

-- name: Requeue
WITH
dead AS MATERIALIZED (
    SELECT id FROM eventkit_task
    WHERE
        queue = :queue AND state = 'dead' AND finished_at IS NOT NULL
        AND (:every::boolean OR id = ANY (:ids::bigint[]))
    FOR UPDATE SKIP LOCKED
),
alive AS (
    UPDATE eventkit_task
    SET
        state = 'ready', attempt = 0, run_at = :now, wake_at = NULL, expires_at = NULL,
        worker = NULL, claimed_at = NULL, finished_at = NULL, reason = NULL, error = NULL, code = NULL, lapsed = false
    WHERE id = ANY (ARRAY(SELECT id FROM dead))
    RETURNING queue, priority
),
opened AS (
    INSERT INTO eventkit_low_water (queue, priority)
    SELECT DISTINCT queue, priority
    FROM alive AS a
    WHERE NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = a.queue AND l.priority = a.priority)
)
SELECT eventkit_wake('task', queue)
FROM alive

-- name: SetPaused
INSERT INTO eventkit_queue (name, paused)
VALUES (:queue, :paused)
ON CONFLICT (name) DO UPDATE
SET paused = excluded.paused
RETURNING eventkit_wake('task', name)

-- Locks the settings until the transaction ends.
-- step: HoldSettings
INSERT INTO eventkit_queue (name) VALUES (:queue) ON CONFLICT (name) DO UPDATE SET name = excluded.name

-- step: WriteSettings
INSERT INTO eventkit_queue AS q (
    name, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl, dead_letter_to, history,
    max_bytes, strict_keys, enqueue_rate, enqueue_burst, ordered, on_dead, fair, group_max_running, group_rate, weights
)
VALUES (
    :queue, :max_attempts, :lease, :retry, :max_size, :rate, :burst, :max_running, :keep_done, :keep_dead, :key_ttl,
    :dead_letter_to, :history, :max_bytes, :strict_keys::boolean, :enqueue_rate, :enqueue_burst,
    :ordered::boolean, :on_dead, :fair::boolean, :group_max_running, :group_rate, :weights
)
ON CONFLICT (name) DO UPDATE
SET
    max_attempts = excluded.max_attempts, lease = excluded.lease, retry = excluded.retry,
    max_size = excluded.max_size, rate = excluded.rate, burst = excluded.burst,
    max_running = excluded.max_running, keep_done = excluded.keep_done, keep_dead = excluded.keep_dead,
    key_ttl = excluded.key_ttl, dead_letter_to = excluded.dead_letter_to, history = excluded.history,
    max_bytes = excluded.max_bytes, strict_keys = excluded.strict_keys,
    enqueue_rate = excluded.enqueue_rate, enqueue_burst = excluded.enqueue_burst,
    ordered = excluded.ordered, on_dead = excluded.on_dead, fair = excluded.fair,
    group_max_running = excluded.group_max_running, group_rate = excluded.group_rate, weights = excluded.weights,
    tokens = CASE
        WHEN q.rate IS NOT DISTINCT FROM excluded.rate AND q.burst IS NOT DISTINCT FROM excluded.burst THEN q.tokens
    END,
    enqueue_tokens = CASE
        WHEN (q.enqueue_rate, q.enqueue_burst) IS NOT DISTINCT FROM (excluded.enqueue_rate, excluded.enqueue_burst)
        THEN q.enqueue_tokens
    END
RETURNING eventkit_wake('task', name)

-- step: Exhaust
WITH waiting AS MATERIALIZED (
    SELECT id FROM eventkit_task
    WHERE
        id = ANY (ARRAY(
            SELECT id FROM eventkit_task WHERE queue = :queue AND state = 'ready' AND attempt >= :most
            UNION ALL
            SELECT id FROM eventkit_task
            WHERE queue = :queue AND state = 'scheduled' AND wake_at IS NOT NULL AND attempt >= :most
            UNION ALL
            SELECT id FROM eventkit_task
            WHERE queue = :queue AND state = 'scheduled' AND group_key IS NOT NULL AND attempt >= :most
        ))
        AND state IN ('ready', 'scheduled') AND max_attempts IS NULL AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY id
    FOR UPDATE
)
UPDATE eventkit_task
SET state = 'dead', reason = 'exhausted', code = coalesce(code, 'EXHAUSTED'), finished_at = :now, wake_at = NULL, held = NULL
WHERE id = ANY (ARRAY(SELECT id FROM waiting))
RETURNING id

-- step: DropSettings
DELETE FROM eventkit_queue WHERE name = :queue RETURNING eventkit_wake('task', name)

-- Webhooks: tasks marked as such in the payload.

-- The history of tasks.  docs/contract.md defines the events and their fields.  The triggers call functions of the
-- schema: all rows of a statement become events at once.

-- step: HoldHistory
SELECT needed, there, obstacle
FROM eventkit_hold_history(:queue, :history)

-- The deletion of claimed tasks is a cancellation until the transaction ends.
-- step: Abandon
SELECT set_config('eventkit.abandoned', :queue, true)

-- step: RecordEnqueued
CREATE TRIGGER eventkit_task_enqueued AFTER INSERT ON eventkit_task
REFERENCING NEW TABLE AS became
FOR EACH STATEMENT EXECUTE FUNCTION eventkit_record_enqueued()

-- step: RecordMoved
CREATE TRIGGER eventkit_task_moved AFTER UPDATE ON eventkit_task
REFERENCING OLD TABLE AS was NEW TABLE AS became
FOR EACH STATEMENT EXECUTE FUNCTION eventkit_record_moved()

-- step: RecordGone
CREATE TRIGGER eventkit_task_gone AFTER DELETE ON eventkit_task
REFERENCING OLD TABLE AS was
FOR EACH STATEMENT EXECUTE FUNCTION eventkit_record_gone()

-- step: ForgetEnqueued
DROP TRIGGER eventkit_task_enqueued ON eventkit_task

-- step: ForgetMoved
DROP TRIGGER eventkit_task_moved ON eventkit_task

-- step: ForgetGone
DROP TRIGGER eventkit_task_gone ON eventkit_task

-- Retention settings.

-- name: ConfigureStream
INSERT INTO eventkit_topic AS t (name, keep, keep_count, keep_unconsumed)
VALUES (:topic, :keep, :keep_count, :keep_unconsumed)
ON CONFLICT (name) DO UPDATE
SET
    keep = CASE WHEN 'keep' = ANY (:given::text[]) THEN excluded.keep ELSE t.keep END,
    keep_count = CASE WHEN 'keep_count' = ANY (:given) THEN excluded.keep_count ELSE t.keep_count END,
    keep_unconsumed = CASE
        WHEN 'keep_unconsumed' = ANY (:given) THEN excluded.keep_unconsumed ELSE t.keep_unconsumed
    END

-- name: ConfigureChannel
INSERT INTO eventkit_channel AS c (name, keep, keep_count)
VALUES (:channel, CASE WHEN 'keep' = ANY (:given::text[]) THEN :keep::bigint ELSE 86400000 END, :keep_count)
ON CONFLICT (name) DO UPDATE
SET
    keep = CASE WHEN 'keep' = ANY (:given) THEN excluded.keep ELSE c.keep END,
    keep_count = CASE WHEN 'keep_count' = ANY (:given) THEN excluded.keep_count ELSE c.keep_count END

-- name: ConfigureInbox
INSERT INTO eventkit_inbox_settings AS r (name, keep)
VALUES (:consumer, :keep)
ON CONFLICT (name) DO UPDATE
SET keep = CASE WHEN 'keep' = ANY (:given::text[]) THEN excluded.keep ELSE r.keep END
