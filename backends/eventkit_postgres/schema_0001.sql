-- The tables of revision 0001.  Statements are separated by blank lines.  Names that begin with eventkit_ get the kit's schema.
-- The functions, which the tables use, are created first (`functions`).

CREATE SEQUENCE eventkit_event_id_seq

CREATE SEQUENCE eventkit_notification_id_seq

CREATE SEQUENCE eventkit_task_id_seq

-- The names that listening processes sleep on: a row for each name and listener.  A crash may lose them,
-- because it ends the listeners' connections too.
CREATE UNLOGGED TABLE eventkit_sleeper (
    name text NOT NULL,
    listener bigint NOT NULL,
    registration bigint NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (name, listener)
)

CREATE TABLE eventkit_identity (
    id text NOT NULL PRIMARY KEY,
    schema_hash text,
    incomplete text
)

INSERT INTO eventkit_identity (id) VALUES (replace(gen_random_uuid()::text, '-', ''))

CREATE TABLE eventkit_event (
    id bigint NOT NULL PRIMARY KEY DEFAULT eventkit_next('event'),
    topic text NOT NULL,
    key text,
    payload json NOT NULL,
    headers json,
    dedup text,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp())
        CHECK (created_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999+00')
)

CREATE INDEX eventkit_event_topic ON eventkit_event (topic, id)

CREATE UNIQUE INDEX eventkit_event_dedup ON eventkit_event (topic, dedup) WHERE dedup IS NOT NULL

CREATE INDEX eventkit_event_task ON eventkit_event (key, id) WHERE topic = 'eventkit.tasks'

CREATE TABLE eventkit_topic (
    name text NOT NULL PRIMARY KEY,
    pruned_to bigint NOT NULL DEFAULT 0,
    keep bigint,
    keep_count bigint,
    keep_unconsumed boolean NOT NULL DEFAULT true
)

CREATE TABLE eventkit_consumer (
    topic text NOT NULL,
    name text NOT NULL,
    position bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    PRIMARY KEY (topic, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

-- The holder of a consumer's name, and its lease.  The token fences: a holder that was replaced cannot save offsets.
CREATE TABLE eventkit_consumer_lease (
    topic text COLLATE "C" NOT NULL,
    consumer text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    holder text NOT NULL,
    token bigint NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (topic, consumer, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE TABLE eventkit_task (
    id bigint NOT NULL PRIMARY KEY DEFAULT nextval('eventkit_task_id_seq'),
    queue text NOT NULL,
    state text NOT NULL DEFAULT 'ready',
    priority integer NOT NULL DEFAULT 0,
    run_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    wake_at timestamptz,
    expires_at timestamptz,
    attempt integer NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND 2147483646),
    lapsed boolean NOT NULL DEFAULT false,
    max_attempts bigint,
    token bigint,
    key text,
    lane text,
    payload json NOT NULL,
    headers json,
    enqueued_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    worker text,
    claimed_at timestamptz,
    finished_at timestamptz,
    reason text,
    error text,
    result json,
    job boolean GENERATED ALWAYS AS (left(payload::text, 27) = '{"task":"eventkit.webhook",') STORED,
    CONSTRAINT moment_in_range CHECK (
        run_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999+00'
        AND wake_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999+00'
        AND expires_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999+00'
        AND enqueued_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999+00'
    )
) WITH (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
)

CREATE INDEX eventkit_task_ready ON eventkit_task (queue, priority DESC, run_at, id)
WHERE state = 'ready'

CREATE INDEX eventkit_task_wake ON eventkit_task (queue, state, wake_at) WHERE wake_at IS NOT NULL

CREATE INDEX eventkit_task_lane ON eventkit_task (queue, lane, state, id) WHERE lane IS NOT NULL

CREATE INDEX eventkit_task_job ON eventkit_task (id) WHERE job

CREATE INDEX eventkit_task_queue_job ON eventkit_task (queue, id) WHERE job

-- Where the ready tasks of a priority begin: a claim does not scan further back.  An index keeps an entry for every
-- ended task until no transaction anywhere is older than its end; without this table, each claim would scan all of
-- them.  Of several rows for a priority the earliest counts, so that no transaction waits for another here.  A
-- transaction that makes a task ready that has been due for some time, or the first of its priority, adds a row;
-- `eventkit_raise` replaces them by one from time to time.  The table also has the time from which tasks of the queue
-- change by themselves (`wake_at`): each delay, lease and expiry leaves an entry in that index.  No statement sets
-- such a time before its own, and none in progress began before the mark.  Only the lease of a claim whose transaction
-- outlasted it, and a plain INSERT, may lie below it, so claims scan everything after a second without a raise, and
-- with each thorough one.  A mark above now is of a clock that was ahead, and is ignored.
CREATE TABLE eventkit_low_water (
    queue text NOT NULL,
    priority integer NOT NULL,
    run_at timestamptz NOT NULL DEFAULT '-infinity',
    wake_at timestamptz,
    raise_at timestamptz NOT NULL DEFAULT '-infinity',
    look_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)

CREATE INDEX eventkit_low_water_queue ON eventkit_low_water (queue, priority, run_at)

CREATE INDEX eventkit_task_finished ON eventkit_task (queue, state, finished_at, id)
WHERE finished_at IS NOT NULL

CREATE TABLE eventkit_queue (
    name text NOT NULL PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    max_attempts bigint,
    lease bigint,
    retry text,
    max_size bigint,
    rate double precision,
    burst double precision,
    max_running bigint,
    keep_done bigint,
    keep_dead bigint,
    key_ttl bigint,
    dead_letter_to text,
    history boolean,
    tokens double precision,
    refilled_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

-- Tables of many rows without a number have keys in the order of bytes, in which a copy reads them.
CREATE TABLE eventkit_key (
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    task_id bigint NOT NULL,
    reserved_until timestamptz NOT NULL,
    PRIMARY KEY (queue, key)
)

CREATE INDEX eventkit_key_until ON eventkit_key (reserved_until)

CREATE TRIGGER eventkit_task_key BEFORE INSERT ON eventkit_task
FOR EACH ROW WHEN (NEW.key IS NOT NULL AND NEW.state <> 'done') EXECUTE FUNCTION eventkit_hold_key()

CREATE TABLE eventkit_notification (
    id bigint NOT NULL PRIMARY KEY DEFAULT eventkit_next('notification'),
    channel text NOT NULL,
    payload json NOT NULL,
    headers json,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp())
        CHECK (created_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999+00')
)

CREATE INDEX eventkit_notification_channel ON eventkit_notification (channel, id)

CREATE TABLE eventkit_channel (
    name text NOT NULL PRIMARY KEY,
    keep bigint DEFAULT 86400000,
    keep_count bigint
)

CREATE TABLE eventkit_inbox (
    consumer text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    PRIMARY KEY (consumer, message_id)
)

CREATE INDEX eventkit_inbox_seen ON eventkit_inbox (consumer, seen_at)

CREATE TABLE eventkit_inbox_settings (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    keep bigint
)

CREATE UNLOGGED TABLE eventkit_staged_rows (
    writer text COLLATE "C" NOT NULL,
    batch bigint NOT NULL,
    attempt bigint NOT NULL,
    part integer NOT NULL,
    position bigint NOT NULL,
    name text NOT NULL,
    payloads json[] NOT NULL,
    keys text[] NOT NULL,
    headers json[] NOT NULL,
    dedups text[],
    priorities integer[],
    max_attempts bigint[],
    delays bigint[],
    run_ats bigint[],
    expires_in bigint[],
    expires_at bigint[],
    staged_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp())
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 1000
)

-- Compressing such short-lived rows takes longer than everything else together.
ALTER TABLE eventkit_staged_rows
    ALTER payloads SET STORAGE EXTERNAL, ALTER keys SET STORAGE EXTERNAL, ALTER headers SET STORAGE EXTERNAL,
    ALTER dedups SET STORAGE EXTERNAL, ALTER priorities SET STORAGE EXTERNAL, ALTER max_attempts SET STORAGE EXTERNAL,
    ALTER delays SET STORAGE EXTERNAL, ALTER run_ats SET STORAGE EXTERNAL, ALTER expires_in SET STORAGE EXTERNAL,
    ALTER expires_at SET STORAGE EXTERNAL

CREATE INDEX eventkit_staged_rows_batch ON eventkit_staged_rows (writer, batch)

CREATE INDEX eventkit_staged_rows_age ON eventkit_staged_rows (staged_at)

CREATE TABLE eventkit_written_batch (
    writer text COLLATE "C" NOT NULL PRIMARY KEY,
    batch bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    expires_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE INDEX eventkit_written_batch_expires ON eventkit_written_batch (expires_at) WHERE expires_at IS NOT NULL

CREATE TABLE eventkit_lake (
    topic text COLLATE "C" NOT NULL PRIMARY KEY,
    location text NOT NULL,
    format text NOT NULL,
    epoch bigint NOT NULL,
    covered bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp())
) WITH (fillfactor = 50)

CREATE TABLE eventkit_lake_file (
    topic text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    date text NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    oldest bigint NOT NULL,
    newest bigint NOT NULL,
    retired_at timestamptz,
    PRIMARY KEY (topic, path)
)

CREATE TABLE eventkit_pipeline (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    source text NOT NULL,
    sink text NOT NULL,
    state text NOT NULL,
    batch bigint,
    rows bigint NOT NULL DEFAULT 0,
    lag bigint,
    error text,
    started_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    updated_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp())
) WITH (fillfactor = 50)

CREATE TABLE eventkit_worker (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    queues text NOT NULL,
    slots bigint NOT NULL,
    running bigint NOT NULL,
    started_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    seen_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp())
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE TABLE eventkit_rollup (
    subject text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    hour bigint NOT NULL,
    measure text COLLATE "C" NOT NULL,
    amount bigint NOT NULL,
    PRIMARY KEY (subject, name, hour, measure)
) WITH (fillfactor = 50)

CREATE TABLE eventkit_api_key (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    name text NOT NULL,
    hash text NOT NULL,
    scopes text NOT NULL,
    rate float8,
    burst float8,
    quota bigint,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    expires_at timestamptz,
    revoked_at timestamptz,
    former text,
    former_until timestamptz
)

CREATE TABLE eventkit_session (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    key text COLLATE "C" NOT NULL,
    secret text NOT NULL,
    expires_at timestamptz NOT NULL
)

CREATE TABLE eventkit_schedule (
    name text NOT NULL PRIMARY KEY,
    timing text NOT NULL,
    zone text NOT NULL,
    queue text NOT NULL,
    payload json NOT NULL,
    headers json,
    priority integer NOT NULL,
    expires bigint,
    max_attempts bigint,
    catch_up text NOT NULL,
    next_at timestamptz,
    last_at timestamptz,
    fired bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    timed_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE INDEX eventkit_schedule_next ON eventkit_schedule (next_at)

CREATE INDEX eventkit_schedule_timed ON eventkit_schedule (timed_at)

-- A released lock keeps its row without holder and expiry, so that fences keep growing.
CREATE TABLE eventkit_lock (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    fence bigint NOT NULL,
    token bigint,
    holder text,
    ttl bigint NOT NULL,
    expires_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE TABLE eventkit_rate (
    name text COLLATE "C" NOT NULL,
    per bigint NOT NULL,
    amount double precision NOT NULL,
    counted_at timestamptz NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (name, per)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE INDEX eventkit_rate_until ON eventkit_rate (until)

CREATE TABLE eventkit_result (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    value json NOT NULL,
    expires_at timestamptz NOT NULL
)

CREATE INDEX eventkit_result_expires ON eventkit_result (expires_at)

CREATE VIEW eventkit_task_now AS
SELECT
    t.id, t.queue,
    CASE
        WHEN t.wake_at > date_trunc('milliseconds', statement_timestamp()) OR t.wake_at IS NULL THEN t.state
        WHEN t.expires_at <= date_trunc('milliseconds', statement_timestamp()) THEN 'dead'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'dead'
        ELSE 'ready'
    END AS state,
    t.payload, coalesce(t.key, t.lane) AS key, t.headers, t.priority, t.attempt,
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
    t.state AS stored_state, t.wake_at, t.lane, t.job
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
