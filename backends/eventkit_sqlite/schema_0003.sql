-- The changes of revision 0003.  Statements are separated by blank lines.

-- Consumer groups.  A member reads the keys of all events from the index, and loads those of its partitions.

DROP INDEX eventkit_event_topic

CREATE INDEX eventkit_event_topic ON eventkit_event (topic, id, key)

ALTER TABLE eventkit_consumer_lease ADD COLUMN paused INTEGER NOT NULL DEFAULT 0

CREATE TABLE eventkit_consumer_group (
    topic TEXT NOT NULL,
    name TEXT NOT NULL,
    partitions INTEGER NOT NULL,
    max_parked INTEGER NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, name)
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_consumer_partition (
    topic TEXT NOT NULL,
    name TEXT NOT NULL,
    partition INTEGER NOT NULL,
    position INTEGER NOT NULL,
    token INTEGER,
    stopped INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, name, partition)
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_consumer_parked (
    topic TEXT NOT NULL,
    name TEXT NOT NULL,
    event INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    key TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    due INTEGER,
    PRIMARY KEY (topic, name, event)
) WITHOUT ROWID, STRICT

-- Task groups.  The index of held tasks has those that wait for their group, in the order in which they are released.

DROP VIEW eventkit_task_now

DROP INDEX eventkit_task_lane

ALTER TABLE eventkit_task RENAME COLUMN lane TO group_key

ALTER TABLE eventkit_task ADD COLUMN turn INTEGER

ALTER TABLE eventkit_task ADD COLUMN held INTEGER

ALTER TABLE eventkit_task ADD COLUMN blocks INTEGER

CREATE INDEX eventkit_task_group ON eventkit_task (queue, group_key, state, id) WHERE group_key IS NOT NULL

CREATE INDEX eventkit_task_held ON eventkit_task (queue, group_key, priority DESC, turn, id) WHERE held IS NOT NULL

CREATE INDEX eventkit_task_turn ON eventkit_task (queue, priority DESC, turn, id)
WHERE state = 'ready' AND turn IS NOT NULL

CREATE INDEX eventkit_task_last_turn ON eventkit_task (queue, group_key, priority, turn) WHERE turn IS NOT NULL

ALTER TABLE eventkit_queue ADD COLUMN ordered INTEGER

ALTER TABLE eventkit_queue ADD COLUMN on_dead TEXT

ALTER TABLE eventkit_queue ADD COLUMN fair INTEGER

ALTER TABLE eventkit_queue ADD COLUMN group_max_running INTEGER

ALTER TABLE eventkit_queue ADD COLUMN group_rate REAL

ALTER TABLE eventkit_queue ADD COLUMN weights TEXT

CREATE TABLE eventkit_group_rate (
    queue TEXT NOT NULL,
    group_key TEXT NOT NULL,
    tokens REAL NOT NULL,
    reserved REAL NOT NULL,
    refilled_at INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (queue, group_key)
) WITHOUT ROWID, STRICT

CREATE INDEX eventkit_group_rate_until ON eventkit_group_rate (until)

CREATE TRIGGER eventkit_task_left AFTER DELETE ON eventkit_task
WHEN OLD.blocks AND OLD.state <> 'done'
BEGIN
    UPDATE eventkit_task
    SET state = 'ready', held = NULL, blocks = 1, wake_at = expires_at
    WHERE id = (
        SELECT id FROM eventkit_task
        WHERE queue = OLD.queue AND group_key = OLD.group_key AND held IS NOT NULL
        ORDER BY priority DESC, turn, id
        LIMIT 1
    );
END

CREATE TRIGGER eventkit_task_ended AFTER UPDATE OF state ON eventkit_task
WHEN
    OLD.blocks AND NEW.state <> OLD.state
    AND (NEW.state IN ('dead', 'done') OR OLD.state = 'leased' AND NEW.state = 'scheduled')
BEGIN
    UPDATE eventkit_task
    SET state = 'ready', held = NULL, blocks = 1, wake_at = expires_at
    WHERE id = (
        SELECT id FROM eventkit_task
        WHERE queue = OLD.queue AND group_key = OLD.group_key AND held IS NOT NULL
        ORDER BY priority DESC, turn, id
        LIMIT 1
    );
END

CREATE VIEW eventkit_task_now AS
SELECT
    t.id, t.queue,
    CASE
        WHEN t.wake_at > CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) OR t.wake_at IS NULL THEN t.state
        WHEN t.expires_at <= CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) THEN 'dead'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'dead'
        ELSE 'ready'
    END AS state,
    t.payload, t.key, t.headers, t.priority, t.attempt,
    coalesce(t.max_attempts, q.max_attempts, 3) AS max_attempts,
    t.run_at, t.enqueued_at, t.expires_at,
    CASE WHEN t.state = 'leased' AND t.wake_at > CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) THEN t.wake_at END AS lease_expires_at,
    t.worker, t.claimed_at, t.finished_at,
    CASE
        WHEN t.wake_at > CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) OR t.wake_at IS NULL THEN t.reason
        WHEN t.expires_at <= CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) THEN 'expired'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'exhausted'
        ELSE t.reason
    END AS reason,
    t.error, t.result,
    t.state AS stored_state, t.wake_at, t.group_key, t.job,
    CASE
        WHEN t.wake_at > CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) OR t.wake_at IS NULL THEN t.code
        WHEN t.expires_at <= CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) THEN 'EXPIRED'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'LEASE_LOST'
        ELSE t.code
    END AS code,
    t.turn
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue

-- For both ways: no task stays held by the other revision.

UPDATE eventkit_task SET held = NULL, wake_at = run_at
WHERE group_key IS NOT NULL AND state = 'scheduled' AND run_at < wake_at

-- For the way back: a queue may have made these triggers.

DROP TRIGGER IF EXISTS eventkit_task_joined

DROP TRIGGER IF EXISTS eventkit_task_paced
