-- The changes of revision 0003.  Statements are separated by blank lines.

-- Consumer groups.  A member reads the keys of all events from the index, and loads those of its partitions.  An index
-- refuses long keys, and a scan of it alone needs a column, so it has a column with the beginning of the key.

ALTER TABLE eventkit_event ADD COLUMN key_start text GENERATED ALWAYS AS (left(key, 200)) STORED

DROP INDEX eventkit_event_topic

CREATE INDEX eventkit_event_topic ON eventkit_event (topic, id, key_start)

ALTER TABLE eventkit_consumer_lease ADD COLUMN paused boolean NOT NULL DEFAULT false

CREATE TABLE eventkit_consumer_group (
    topic text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    partitions integer NOT NULL,
    max_parked integer NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    generation bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE TABLE eventkit_consumer_partition (
    topic text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    position bigint NOT NULL,
    token bigint,
    stopped boolean NOT NULL DEFAULT false,
    PRIMARY KEY (topic, name, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE TABLE eventkit_consumer_parked (
    topic text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    event bigint NOT NULL,
    partition integer NOT NULL,
    key text,
    attempt integer NOT NULL DEFAULT 0,
    due timestamptz,
    PRIMARY KEY (topic, name, event)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

-- Task groups.  The index of held tasks has those that wait for their group, in the order in which they are released.

DROP INDEX eventkit_task_lane

ALTER TABLE eventkit_task RENAME COLUMN lane TO group_key

ALTER VIEW eventkit_task_now RENAME COLUMN lane TO group_key

ALTER TABLE eventkit_task ADD COLUMN turn bigint

ALTER TABLE eventkit_task ADD COLUMN held boolean

ALTER TABLE eventkit_task ADD COLUMN blocks boolean

CREATE INDEX eventkit_task_group ON eventkit_task (queue, group_key, state, id) WHERE group_key IS NOT NULL

CREATE INDEX eventkit_task_held ON eventkit_task (queue, group_key, priority DESC, turn, id) WHERE held IS NOT NULL

CREATE INDEX eventkit_task_turn ON eventkit_task (queue, priority DESC, turn, id)
WHERE state = 'ready' AND turn IS NOT NULL

CREATE INDEX eventkit_task_last_turn ON eventkit_task (queue, group_key, priority, turn) WHERE turn IS NOT NULL

ALTER TABLE eventkit_queue ADD COLUMN ordered boolean

ALTER TABLE eventkit_queue ADD COLUMN on_dead text

ALTER TABLE eventkit_queue ADD COLUMN fair boolean

ALTER TABLE eventkit_queue ADD COLUMN group_max_running bigint

ALTER TABLE eventkit_queue ADD COLUMN group_rate double precision

ALTER TABLE eventkit_queue ADD COLUMN weights text

ALTER TABLE eventkit_staged_rows ADD COLUMN group_keys text[]

CREATE TABLE eventkit_group_rate (
    queue text COLLATE "C" NOT NULL,
    group_key text COLLATE "C" NOT NULL,
    tokens double precision NOT NULL,
    reserved double precision NOT NULL,
    refilled_at timestamptz NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (queue, group_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE INDEX eventkit_group_rate_until ON eventkit_group_rate (until)

CREATE TRIGGER eventkit_task_left AFTER DELETE ON eventkit_task
FOR EACH ROW WHEN (OLD.blocks AND OLD.state <> 'done')
EXECUTE FUNCTION eventkit_release_group()

CREATE TRIGGER eventkit_task_ended AFTER UPDATE OF state ON eventkit_task
FOR EACH ROW WHEN (
    OLD.blocks AND NEW.state <> OLD.state
    AND (NEW.state IN ('dead', 'done') OR OLD.state = 'leased' AND NEW.state = 'scheduled')
)
EXECUTE FUNCTION eventkit_release_group()

-- Replaced, not dropped, so that grants and the views of an application stay.
CREATE OR REPLACE VIEW eventkit_task_now AS
SELECT
    t.id, t.queue,
    CASE
        WHEN t.wake_at > date_trunc('milliseconds', statement_timestamp()) OR t.wake_at IS NULL THEN t.state
        WHEN t.expires_at <= date_trunc('milliseconds', statement_timestamp()) THEN 'dead'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'dead'
        ELSE 'ready'
    END AS state,
    t.payload, t.key, t.headers, t.priority, t.attempt,
    coalesce(t.max_attempts, q.max_attempts, 3) AS max_attempts,
    t.run_at, t.enqueued_at, t.expires_at,
    CASE
        WHEN t.state = 'leased' AND t.wake_at > date_trunc('milliseconds', statement_timestamp()) THEN t.wake_at
    END AS lease_expires_at,
    t.worker, t.claimed_at, t.finished_at,
    CASE
        WHEN t.wake_at > date_trunc('milliseconds', statement_timestamp()) OR t.wake_at IS NULL THEN t.reason
        WHEN t.expires_at <= date_trunc('milliseconds', statement_timestamp()) THEN 'expired'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'exhausted'
        ELSE t.reason
    END AS reason,
    t.error, t.result,
    t.state AS stored_state, t.wake_at, t.group_key, t.job,
    CASE
        WHEN t.wake_at > date_trunc('milliseconds', statement_timestamp()) OR t.wake_at IS NULL THEN t.code
        WHEN t.expires_at <= date_trunc('milliseconds', statement_timestamp()) THEN 'EXPIRED'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'LEASE_LOST'
        ELSE t.code
    END AS code,
    t.turn
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue

-- For both ways: no task stays held by the other revision.

UPDATE eventkit_task SET held = NULL, wake_at = run_at
WHERE group_key IS NOT NULL AND state = 'scheduled' AND run_at < wake_at

-- For the way back: a queue may have made these triggers.

DROP TRIGGER IF EXISTS eventkit_task_joined ON eventkit_task

DROP TRIGGER IF EXISTS eventkit_task_paced ON eventkit_task
