-- Inspecting, clearing and configuring queues.
--
-- The view eventkit_task_now shows a due task in the state that Promote would give it.

-- part: info
    id, queue, state, CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB), priority, attempt, max_attempts,
    run_at, enqueued_at, expires_at, lease_expires_at, worker, claimed_at, finished_at, reason, error, code, result, CAST(group_key AS BLOB)

-- name: FindTokens
SELECT id, queue, coalesce(token, 0) FROM eventkit_task WHERE id IN (SELECT value FROM json_each(:ids))

-- name: ListDeadByError
SELECT reason, code, error, count(*), min(finished_at), max(finished_at), max(id)
FROM eventkit_task
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL
GROUP BY reason, code, error
ORDER BY count(*) DESC, max(id) DESC
LIMIT :limit

-- The ready index gives the oldest task of each priority; the recursion skips from one priority to the next.
-- Nothing is counted beyond :limit, so the cost does not grow with the queue.
-- part: counts
    (
        WITH RECURSIVE
        due (stored_state, state, run_at) AS (
            SELECT stored_state, state, run_at
            FROM eventkit_task_now
            WHERE queue = q.name AND stored_state IN ('scheduled', 'leased', 'ready') AND wake_at <= :now
            LIMIT :limit
        ),
        priorities (priority) AS (
            SELECT max(priority) FROM eventkit_task WHERE queue = q.name AND state = 'ready'
            UNION ALL
            SELECT (
                SELECT max(t.priority) FROM eventkit_task AS t
                WHERE t.queue = q.name AND t.state = 'ready' AND t.priority < p.priority
            )
            FROM priorities AS p
            WHERE p.priority IS NOT NULL
        )
        SELECT json_array(
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'scheduled' AND wake_at > :now LIMIT :limit) AS few),
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'ready' LIMIT :limit) AS few),
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'leased' AND wake_at > :now LIMIT :limit) AS few),
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'dead' AND finished_at IS NOT NULL LIMIT :limit) AS few),
            (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = q.name AND state = 'done' AND finished_at IS NOT NULL LIMIT :limit) AS few),
            (SELECT count(*) FROM due),
            (SELECT count(*) FROM due WHERE state = 'ready'),
            (SELECT count(*) FROM due WHERE stored_state = 'ready'),
            (SELECT count(*) FROM due WHERE state = 'dead'),
            :now - (
                SELECT min(run_at) FROM (
                    SELECT (
                        SELECT min(t.run_at) FROM eventkit_task AS t
                        WHERE
                            t.queue = q.name AND t.state = 'ready' AND t.priority = p.priority
                            AND (t.expires_at IS NULL OR t.expires_at > :now)
                    ) AS run_at
                    FROM priorities AS p
                    UNION ALL
                    SELECT run_at FROM due WHERE state = 'ready'
                ) AS oldest
            ),
            coalesce((SELECT paused FROM eventkit_queue WHERE name = q.name), 0)
        )
    )

-- name: ReadStats
SELECT :counts FROM (SELECT :queue AS name) AS q

-- name: ReadSize
SELECT :size

-- name: ReadNextDue
SELECT min(moment)
FROM :due_moments

-- step: FindToCancel
SELECT state = 'leased'
FROM eventkit_task_now
WHERE queue = :queue AND id = :id AND (state IN ('scheduled', 'ready') OR state = 'leased' AND :running)

-- name: Purge
DELETE FROM eventkit_task
WHERE queue = :queue AND state = :state AND (:older_than IS NULL OR finished_at <= :now - :older_than)
RETURNING id

-- The key of a done task was reserved when it finished, and may belong to another task by now.
-- step: ReserveKeysOfState
INSERT INTO eventkit_key (queue, key, task_id, reserved_until, payload)
SELECT
    t.queue, t.key, t.id, t.enqueued_at + coalesce(q.key_ttl, 86400000), CASE WHEN q.strict_keys THEN t.payload END
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
WHERE
    t.queue = :queue AND t.state = :state AND t.state <> 'done'
    AND (:older_than IS NULL OR t.finished_at <= :now - :older_than)
    AND t.key IS NOT NULL AND t.enqueued_at + coalesce(q.key_ttl, 86400000) > :now
ON CONFLICT (queue, key) DO UPDATE
SET task_id = excluded.task_id, reserved_until = excluded.reserved_until, payload = excluded.payload

-- name: Requeue
UPDATE eventkit_task
SET
    state = 'ready', attempt = 0, run_at = :now, wake_at = NULL, expires_at = NULL,
    worker = NULL, claimed_at = NULL, finished_at = NULL, reason = NULL, error = NULL, code = NULL, lapsed = 0
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL AND (:every OR id IN (SELECT value FROM json_each(:ids)))
RETURNING id

-- name: SetPaused
INSERT INTO eventkit_queue (name, paused)
VALUES (:queue, :paused)
ON CONFLICT (name) DO UPDATE
SET paused = excluded.paused

-- Locks the settings until the transaction ends.
-- step: HoldSettings
INSERT INTO eventkit_queue (name) VALUES (:queue) ON CONFLICT (name) DO NOTHING

-- step: WriteSettings
INSERT INTO eventkit_queue (
    name, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl, dead_letter_to, history,
    max_bytes, strict_keys, enqueue_rate, enqueue_burst, ordered, on_dead, fair, group_max_running, group_rate, weights
)
VALUES (
    :queue, :max_attempts, :lease, :retry, :max_size, :rate, :burst, :max_running, :keep_done, :keep_dead, :key_ttl,
    :dead_letter_to, :history, :max_bytes, :strict_keys, :enqueue_rate, :enqueue_burst,
    :ordered, :on_dead, :fair, :group_max_running, :group_rate, :weights
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
    tokens = CASE WHEN rate IS excluded.rate AND burst IS excluded.burst THEN tokens END,
    enqueue_tokens = CASE
        WHEN enqueue_rate IS excluded.enqueue_rate AND enqueue_burst IS excluded.enqueue_burst THEN enqueue_tokens
    END

-- step: Exhaust
UPDATE eventkit_task
SET state = 'dead', reason = 'exhausted', code = coalesce(code, 'EXHAUSTED'), finished_at = :now, wake_at = NULL, held = NULL
WHERE
    queue = :queue AND attempt >= :most AND max_attempts IS NULL AND (expires_at IS NULL OR expires_at > :now)
    AND id IN (
        SELECT id FROM eventkit_task WHERE queue = :queue AND state = 'ready'
        UNION ALL
        SELECT id FROM eventkit_task WHERE queue = :queue AND state = 'scheduled' AND wake_at IS NOT NULL
        UNION ALL
        SELECT id FROM eventkit_task WHERE queue = :queue AND state = 'scheduled' AND group_key IS NOT NULL
    )
RETURNING id

-- step: DropSettings
DELETE FROM eventkit_queue WHERE name = :queue

-- Webhooks: tasks marked as such in the payload.

-- The history of tasks.  docs/contract.md defines the events and their fields.
--
-- A claimed task that is deleted with its token was finished: a cancellation removes the token first.

-- step: HoldHistory
SELECT
    :history OR EXISTS (SELECT 1 FROM eventkit_queue WHERE history AND name <> :queue),
    EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = 'eventkit_task_enqueued'),
    NULL

-- The deletion of claimed tasks is a cancellation until the transaction ends.
-- step: Abandon
UPDATE eventkit_task SET token = NULL WHERE queue = :queue AND state = 'leased'

-- step: RecordEnqueued
CREATE TRIGGER eventkit_task_enqueued AFTER INSERT ON eventkit_task
WHEN (SELECT history FROM eventkit_queue WHERE name = NEW.queue)
BEGIN
    INSERT INTO eventkit_event (topic, key, payload)
    VALUES ('eventkit.tasks', NEW.queue || ':' || NEW.id, json_object(
        'queue', NEW.queue, 'id', NEW.id, 'kind', 'enqueued', 'attempt', NEW.attempt, 'worker', NULL,
        'priority', NEW.priority, 'run_at', NEW.run_at, 'wait_ms', NULL, 'run_ms', NULL, 'reason', NULL, 'error', NULL
    ));
END

-- A death that ends an attempt is two events.  Promotion by the clock or by the order of a group is none.
-- step: RecordMoved
CREATE TRIGGER eventkit_task_moved AFTER UPDATE OF state ON eventkit_task
WHEN
    OLD.state <> NEW.state AND NOT (OLD.state IN ('scheduled', 'ready') AND NEW.state IN ('scheduled', 'ready'))
    AND (SELECT history FROM eventkit_queue WHERE name = NEW.queue)
BEGIN
    INSERT INTO eventkit_event (topic, key, payload)
    SELECT 'eventkit.tasks', NEW.queue || ':' || NEW.id, json_object(
        'queue', NEW.queue, 'id', NEW.id, 'kind', kind,
        'attempt', iif(kind IN ('released', 'snoozed'), OLD.attempt, NEW.attempt),
        'worker', iif('leased' IN (OLD.state, NEW.state), NEW.worker, NULL),
        'priority', NEW.priority, 'run_at', NEW.run_at,
        'wait_ms', iif(kind = 'started', max(0, NEW.claimed_at - max(NEW.run_at, NEW.enqueued_at)), NULL),
        'run_ms', CASE
            WHEN kind = 'lapsed' THEN max(0, OLD.wake_at - OLD.claimed_at)
            WHEN OLD.state = 'leased' AND kind NOT IN ('dead', 'expired') THEN max(0, :now - OLD.claimed_at)
        END,
        'reason', NEW.reason,
        'error', iif(OLD.state = 'leased' AND kind NOT IN ('succeeded', 'released', 'snoozed'), substr(NEW.error, 1, 2000), NULL)
    )
    FROM (
        SELECT CASE
            WHEN NEW.state = 'leased' THEN 'started'
            WHEN NEW.state = 'done' THEN 'succeeded'
            WHEN OLD.state = 'dead' THEN 'requeued'
            WHEN OLD.state <> 'leased' THEN NULL
            WHEN NEW.attempt < OLD.attempt THEN iif(NEW.state = 'scheduled', 'snoozed', 'released')
            WHEN NEW.lapsed THEN 'lapsed'
            ELSE iif(NEW.state = 'dead', 'failed', 'retried')
        END AS kind
        UNION ALL
        SELECT iif(NEW.state = 'dead', iif(NEW.reason = 'expired', 'expired', 'dead'), NULL)
    )
    WHERE kind IS NOT NULL;
END

-- step: RecordGone
CREATE TRIGGER eventkit_task_gone AFTER DELETE ON eventkit_task
WHEN OLD.state <> 'done' AND (SELECT history FROM eventkit_queue WHERE name = OLD.queue)
BEGIN
    INSERT INTO eventkit_event (topic, key, payload)
    VALUES ('eventkit.tasks', OLD.queue || ':' || OLD.id, json_object(
        'queue', OLD.queue, 'id', OLD.id,
        'kind', CASE
            WHEN OLD.state = 'dead' THEN 'purged'
            WHEN OLD.state = 'leased' AND OLD.token IS NOT NULL THEN 'succeeded'
            ELSE 'cancelled'
        END,
        'attempt', OLD.attempt, 'worker', iif(OLD.state = 'leased', OLD.worker, NULL),
        'priority', OLD.priority, 'run_at', OLD.run_at, 'wait_ms', NULL,
        'run_ms', iif(OLD.state = 'leased', max(0, :now - OLD.claimed_at), NULL), 'reason', NULL, 'error', NULL
    ));
END

-- step: ForgetEnqueued
DROP TRIGGER eventkit_task_enqueued

-- step: ForgetMoved
DROP TRIGGER eventkit_task_moved

-- step: ForgetGone
DROP TRIGGER eventkit_task_gone

-- Retention settings.

-- name: ConfigureStream
INSERT INTO eventkit_topic (name, keep, keep_count, keep_unconsumed)
VALUES (:topic, :keep, :keep_count, :keep_unconsumed)
ON CONFLICT (name) DO UPDATE
SET
    keep = iif('keep' IN (SELECT value FROM json_each(:given)), excluded.keep, keep),
    keep_count = iif('keep_count' IN (SELECT value FROM json_each(:given)), excluded.keep_count, keep_count),
    keep_unconsumed = iif(
        'keep_unconsumed' IN (SELECT value FROM json_each(:given)), excluded.keep_unconsumed, keep_unconsumed
    )

-- name: ConfigureChannel
INSERT INTO eventkit_channel (name, keep, keep_count)
VALUES (
    :channel, iif('keep' IN (SELECT value FROM json_each(:given)), :keep, 86400000), :keep_count
)
ON CONFLICT (name) DO UPDATE
SET
    keep = iif('keep' IN (SELECT value FROM json_each(:given)), excluded.keep, keep),
    keep_count = iif('keep_count' IN (SELECT value FROM json_each(:given)), excluded.keep_count, keep_count)

-- name: ConfigureInbox
INSERT INTO eventkit_inbox_settings (name, keep)
VALUES (:consumer, :keep)
ON CONFLICT (name) DO UPDATE
SET keep = iif('keep' IN (SELECT value FROM json_each(:given)), excluded.keep, keep)
