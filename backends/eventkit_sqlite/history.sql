-- The history of tasks.  docs/contract.md defines the events and their fields.
--
-- A claimed task that is deleted with its token was finished: a cancellation removes the token first.

-- step: HoldHistory
SELECT
    :history OR EXISTS (SELECT 1 FROM eventkit_queue WHERE history AND name <> :queue),
    EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = 'eventkit_task_enqueued'),
    NULL

-- step: Abandon
UPDATE eventkit_task
SET token = NULL
WHERE queue = :queue AND state = 'leased'

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

-- A death that ends an attempt is two events.  Promotion by the clock or by the order of a lane is none.
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
