-- Statements are separated by blank lines.  Names that begin with eventkit_ get the kit's schema.

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

-- The advisory lock for a topic, channel, queue or other subject of a wait.
CREATE FUNCTION eventkit_subject(subject text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (hashtextextended($1, 'eventkit_event_id_seq'::regclass::oid::bigint) & 2147483647)::integer
$$

-- The channel on which the listeners of a schema listen.
CREATE FUNCTION eventkit_bell() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT 'eventkit:' || eventkit_subject('bell')
$$

-- The last number drawn for a kind; 0 before the first.  Kinds without a sequence use times.
CREATE FUNCTION eventkit_drawn(kind text) RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT CASE $1
        WHEN 'event' THEN coalesce(pg_sequence_last_value('eventkit_event_id_seq'::regclass), 0)
        WHEN 'notification' THEN coalesce(pg_sequence_last_value('eventkit_notification_id_seq'::regclass), 0)
        ELSE (date_part('epoch', clock_timestamp()) * 1000)::bigint
    END
$$

-- Leave a mark: a shared lock that means "a transaction is in progress, and all numbers that it draws are above this
-- one".  Return whether to look for sleepers now.  Once is enough for a name and a transaction, because a later sleeper
-- sees the mark; a setting remembers it, and ends with the lock: at the end of the transaction, or with the savepoint.
-- After 32 names one mark stands for the whole kind, or the lock table would run out, and then the function cannot know
-- for which names it has returned true.
CREATE FUNCTION eventkit_mark(kind text, name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    marks text := coalesce(nullif(current_setting('eventkit.marks', true), ''), ',');
    lock integer := eventkit_subject($1 || ':' || $2);
    done boolean;  -- Assigning the result of a function costs a tenth of PERFORM, which plans and runs a query.
BEGIN
    IF strpos(marks, ',' || lock || ',') > 0 THEN
        RETURN false;
    END IF;
    IF cardinality(string_to_array(marks, ',')) > 33 THEN
        lock := eventkit_subject($1 || ':*');
    END IF;
    IF strpos(marks, ',' || lock || ',') = 0 THEN
        done := pg_advisory_xact_lock_shared(lock, (eventkit_drawn($1) & 2147483647)::integer) IS NULL;
        done := set_config('eventkit.marks', marks || lock || ',', true) IS NULL;
    END IF;
    RETURN true;
END
$$

-- Notify the sleepers on a name, unless the transaction will be prepared: then it must not notify.
CREATE FUNCTION eventkit_wake(kind text, name text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF current_setting('eventkit.notify_off', true) IS DISTINCT FROM 'on' THEN
        PERFORM pg_notify(eventkit_bell(), $1 || ':' || $2);
    END IF;
END
$$

-- Wake the waiters for a name.  Every change that a waiter may wait for calls this before the commit, or does the same
-- around its statement: leave a mark, look for sleepers in a later snapshot, and notify them.  Where no later snapshot
-- is available, a sleeper may be missing from it, and the channel is notified without looking.
CREATE FUNCTION eventkit_stir(kind text, name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF eventkit_mark($1, $2) THEN  -- A separate statement, so that the next one has a later snapshot.
        IF
            current_setting('transaction_isolation') <> 'read committed'
            OR EXISTS (SELECT FROM eventkit_sleeper AS s WHERE s.name = $1 || ':' || $2 AND s.until > clock_timestamp())
        THEN
            PERFORM eventkit_wake($1, $2);
        END IF;
    END IF;
    RETURN true;
END
$$

-- The highest number up to which every transaction on these names has ended.  Read rows up to it in a later snapshot,
-- never in an earlier one.  A standby does not have the locks of the primary, so the marks are invisible there and a
-- reader would skip events.
CREATE FUNCTION eventkit_settled(kind text, names text[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    last bigint := eventkit_drawn($1);
    below bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE 'this server is a hot standby, which cannot see who is publishing: read on the primary'
            USING ERRCODE = 'cannot_connect_now';
    END IF;
    SELECT max((last - objid::bigint) & 2147483647)
    INTO below
    FROM pg_locks
    WHERE
        locktype = 'advisory' AND objsubid = 2
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = ANY (
            SELECT eventkit_subject($1 || ':' || name)::oid FROM unnest($2 || ARRAY['*']) AS name
        )
        -- A mark left after `last` was read is above it, and irrelevant.
        AND (last - objid::bigint) & 2147483647 < 1073741824;
    RETURN last - coalesce(below, 0);
END
$$

-- Transactions in progress that have marked one of these subjects, as pg_locks names them.
CREATE FUNCTION eventkit_under_way(subjects text[]) RETURNS SETOF text
LANGUAGE sql VOLATILE
AS $$
    SELECT DISTINCT virtualtransaction
    FROM pg_locks
    WHERE
        locktype = 'advisory' AND objsubid = 2
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = ANY (
            SELECT eventkit_subject(subject)::oid FROM unnest($1) AS subject
            UNION ALL
            SELECT eventkit_subject(kind || ':*')::oid FROM unnest(ARRAY['event', 'notification', 'task', 'schedule', 'lock', 'result']) AS kind
        )
$$

-- A time in milliseconds since 1970, and back.
CREATE FUNCTION eventkit_ms(moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT (date_part('epoch', $1) * 1000)::bigint
$$

CREATE FUNCTION eventkit_moment(milliseconds bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT to_timestamp($1 / 1000.0)
$$

-- When a task with these due and expiry times changes by itself, if that is set now.  Never before now, even if the
-- task has expired already, because claims do not scan further back (eventkit_low).
CREATE FUNCTION eventkit_wakes_at(due timestamptz, expires timestamptz, now timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN $2 < $3 THEN $3 WHEN $1 > $3 THEN least($1, $2) ELSE $2 END
$$

-- Whether another transaction in progress has locked or changed a row with this xmax.  An ended transaction stays in
-- xmax; that of a savepoint has no lock, but a status.  Of the 64 bits xmax has the lower 32.
CREATE FUNCTION eventkit_in_hand(holder xid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    newest bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    distance bigint := (newest - $1::text::bigint) & 4294967295;
BEGIN
    IF $1 = '0' OR age($1) <= 0 THEN
        RETURN false;
    END IF;
    IF distance >= 2147483648 THEN  -- A transaction in progress may be newer.
        distance := distance - 4294967296;
    END IF;
    RETURN newest > distance AND pg_xact_status((newest - distance)::text::xid8) IS NOT DISTINCT FROM 'in progress';
END
$$

-- The numbers of plain INSERTs: marked as if the transaction wrote to every topic.
CREATE FUNCTION eventkit_next(kind text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    stirred boolean := eventkit_stir($1, '*');
BEGIN
    RETURN nextval(CASE $1
        WHEN 'event' THEN 'eventkit_event_id_seq'::regclass
        ELSE 'eventkit_notification_id_seq'::regclass
    END);
END
$$

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
    retain bigint,
    max_keep bigint,
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
CREATE TABLE eventkit_low (
    queue text NOT NULL,
    priority integer NOT NULL,
    run_at timestamptz NOT NULL DEFAULT '-infinity',
    wake_at timestamptz,
    raise_at timestamptz NOT NULL DEFAULT '-infinity',
    look_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)

CREATE INDEX eventkit_low_queue ON eventkit_low (queue, priority, run_at)

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

-- A key is held from the enqueue on, in a row that outlives the task: without a limit while the task exists, then
-- until the reservation ends.  Concurrent producers conflict on its primary key.
CREATE FUNCTION eventkit_hold_key() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    held eventkit_key;
BEGIN
    INSERT INTO eventkit_key (queue, key, task_id, reserved_until)
    VALUES (NEW.queue, NEW.key, NEW.id, 'infinity')
    ON CONFLICT (queue, key) DO NOTHING;
    IF FOUND THEN
        RETURN NEW;
    END IF;
    -- A separate statement with its own snapshot, because the one before may have waited for a commit.
    SELECT * INTO held FROM eventkit_key AS k WHERE k.queue = NEW.queue AND k.key = NEW.key;
    IF
        held.reserved_until <= date_trunc('milliseconds', clock_timestamp())
        OR held.reserved_until = 'infinity'
        AND NOT EXISTS (SELECT FROM eventkit_task AS t WHERE t.id = held.task_id AND t.state <> 'done')
    THEN
        UPDATE eventkit_key AS k SET task_id = NEW.id, reserved_until = 'infinity'
        WHERE k.queue = NEW.queue AND k.key = NEW.key AND k.task_id = held.task_id;
        IF FOUND THEN
            RETURN NEW;
        END IF;
    END IF;
    RETURN NULL;
END
$$

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
    retain bigint DEFAULT 86400000,
    max_keep bigint
)

CREATE TABLE eventkit_inbox (
    consumer text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    PRIMARY KEY (consumer, message_id)
)

CREATE INDEX eventkit_inbox_seen ON eventkit_inbox (consumer, seen_at)

CREATE TABLE eventkit_recipient (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    retain bigint
)

CREATE UNLOGGED TABLE eventkit_staged (
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
ALTER TABLE eventkit_staged
    ALTER payloads SET STORAGE EXTERNAL, ALTER keys SET STORAGE EXTERNAL, ALTER headers SET STORAGE EXTERNAL,
    ALTER dedups SET STORAGE EXTERNAL, ALTER priorities SET STORAGE EXTERNAL, ALTER max_attempts SET STORAGE EXTERNAL,
    ALTER delays SET STORAGE EXTERNAL, ALTER run_ats SET STORAGE EXTERNAL, ALTER expires_in SET STORAGE EXTERNAL,
    ALTER expires_at SET STORAGE EXTERNAL

CREATE INDEX eventkit_staged_batch ON eventkit_staged (writer, batch)

CREATE INDEX eventkit_staged_age ON eventkit_staged (staged_at)

CREATE TABLE eventkit_written (
    writer text COLLATE "C" NOT NULL PRIMARY KEY,
    batch bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    expires_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE INDEX eventkit_written_expires ON eventkit_written (expires_at) WHERE expires_at IS NOT NULL

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

-- Checks for the functions that plain SQL calls, with the library's error texts.

CREATE FUNCTION eventkit_check_name(kind text, name text, longest integer DEFAULT 255) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF $2 IS NULL THEN
        RAISE EXCEPTION 'the name of a % is a text, not NULL', $1 USING ERRCODE = 'invalid_parameter_value';
    ELSIF length($2) NOT BETWEEN 1 AND $3 THEN
        RAISE EXCEPTION 'the name of a % has 1 to % characters, not %', $1, $3, length($2)
        USING ERRCODE = 'invalid_parameter_value';
    ELSIF $2 ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'the name of a % holds no control characters: %', $1, to_json($2)
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN $2;
END
$$

CREATE FUNCTION eventkit_check_given(what text, value bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF $2 IS NULL THEN
        RAISE EXCEPTION '% is a number, not NULL', $1 USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN $2;
END
$$

CREATE FUNCTION eventkit_check_count(what text, value bigint, smallest bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF eventkit_check_given($1, $2) < $3 THEN
        RAISE EXCEPTION '% is a whole number from % to 9223372036854775807, not %', $1, $3, $2
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN $2;
END
$$

-- Seconds as whole milliseconds; NULL stays NULL.
CREATE FUNCTION eventkit_check_seconds(what text, seconds double precision, smallest bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF abs($2) > 3162240000 THEN  -- NaN too, which is greater than any number.
        RAISE EXCEPTION '% is a finite number of seconds, up to a hundred years, not %', $1, $2
        USING ERRCODE = 'invalid_parameter_value';
    ELSIF round($2 * 1000) < $3 THEN
        RAISE EXCEPTION '% is at least % seconds, not %', $1, $3 / 1000.0::double precision, $2
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN round($2 * 1000)::bigint;
END
$$

-- Check that every reader can decode a payload.  The type json has checked the syntax.
CREATE FUNCTION eventkit_check_payload(payload json, optional boolean DEFAULT false) RETURNS json
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    source text := $1::text;
    rest text;
    depth integer := 0;
    problem text;
BEGIN
    IF $1 IS NULL AND $2 THEN
        RETURN NULL;
    ELSIF $1 IS NULL THEN
        problem := 'the payload is JSON, not NULL: for a null say ''null''';
    ELSIF octet_length(source) > 524288 THEN
        problem := format(
            'the payload has %s bytes as JSON, more than 524,288: store the data elsewhere and send a reference',
            to_char(octet_length(source), 'FM999,999,999')
        );
    ELSE
        IF source ~* '\\ud' THEN  -- Escaped backslashes escape nothing.
            rest := replace(source, '\\', '');
            rest := regexp_replace(rest, '\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g');
            IF rest ~* '\\ud[89a-f]' THEN
                problem := 'the payload holds a lone surrogate, which is not text';
            END IF;
        END IF;
        IF length(source) > 128 OR source ~* '\de' THEN
            rest := regexp_replace(source, '"(?:[^"\\]|\\.)*"', '', 'g');
            PERFORM number[1]::double precision
            FROM regexp_matches(rest, '(-?\d+(?:\.\d+)?[eE]\+?\d{3,})', 'g') AS number;
            rest := regexp_replace(rest, '[^][{}]', '', 'g');
            WHILE rest <> '' AND depth <= 64 LOOP
                rest := regexp_replace(rest, '\[\]|\{\}', '', 'g');
                depth := depth + 1;
            END LOOP;
            IF depth > 64 THEN
                problem := 'the payload is nested deeper than 64 levels: flatten it';
            END IF;
        END IF;
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN $1;
END
$$

CREATE FUNCTION eventkit_check_headers(headers json) RETURNS json
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    texts boolean := false;
BEGIN
    IF $1 IS NULL OR json_typeof($1) = 'null' THEN
        RETURN NULL;
    ELSIF json_typeof($1) = 'object' THEN
        texts := NOT EXISTS (SELECT FROM json_each($1) AS h WHERE json_typeof(h.value) <> 'string');
    END IF;
    IF NOT texts THEN
        RAISE EXCEPTION 'headers are an object of strings, not %', $1 USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN eventkit_check_payload($1);
END
$$

-- Streams.

CREATE FUNCTION eventkit_append(
    topic text, payload json, key text, headers json, dedup text
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    marked boolean := eventkit_mark('event', $1);
    asleep boolean;
    published bigint;
BEGIN
    IF $5 IS NULL THEN
        INSERT INTO eventkit_event (id, topic, payload, key, headers)
        VALUES (nextval('eventkit_event_id_seq'), $1, $2, $3, $4)
        RETURNING id, marked AND (
            current_setting('transaction_isolation') <> 'read committed'
            OR EXISTS (SELECT FROM eventkit_sleeper AS s WHERE s.name = 'event:' || $1 AND s.until > clock_timestamp())
        ) INTO published, asleep;
    ELSE
        INSERT INTO eventkit_event (id, topic, payload, key, headers, dedup)
        VALUES (nextval('eventkit_event_id_seq'), $1, $2, $3, $4, $5)
        ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING
        RETURNING id INTO published;
        IF published IS NULL THEN
            SELECT id INTO published FROM eventkit_event WHERE topic = $1 AND dedup = $5;
        END IF;
        asleep := marked AND (
            current_setting('transaction_isolation') <> 'read committed'
            OR EXISTS (SELECT FROM eventkit_sleeper AS s WHERE s.name = 'event:' || $1 AND s.until > clock_timestamp())
        );
    END IF;
    IF asleep THEN
        PERFORM eventkit_wake('event', $1);
    END IF;
    RETURN published;
END
$$

CREATE FUNCTION eventkit_publish(
    topic text, payload json, key text DEFAULT NULL, headers json DEFAULT NULL, dedup text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN eventkit_append(
        eventkit_check_name('topic', $1), eventkit_check_payload($2),
        CASE WHEN $3 IS NOT NULL THEN eventkit_check_name('key', $3, 1000) END, eventkit_check_headers($4),
        CASE WHEN $5 IS NOT NULL THEN eventkit_check_name('key', $5, 1000) END
    );
END
$$

COMMENT ON FUNCTION eventkit_publish IS
    'Publishes an event, in this transaction, and returns its offset, or that of the event with the dedup id.'

CREATE FUNCTION eventkit_events_after(topic text, after bigint, "limit" bigint)
RETURNS TABLE (id bigint, key text, payload text, headers text, created_ms bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
BEGIN
    RETURN QUERY
    SELECT e.id, e.key, e.payload::text, e.headers::text, eventkit_ms(e.created_at)
    FROM eventkit_event AS e
    WHERE e.topic = $1 AND e.id > $2 AND e.id <= settled
    ORDER BY e.id
    LIMIT $3;
END
$$

-- Whether there is an event after a number, or the last event that was read is lost; and if the events are not settled,
-- when to check again: after a tenth of the time that they have been waiting.
CREATE FUNCTION eventkit_events_ahead(topic text, after bigint, event bigint, created bigint)
RETURNS TABLE (ready boolean, due bigint, now bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
    first record;
BEGIN
    SELECT e.id, eventkit_ms(clock_timestamp()) AS now, eventkit_ms(e.created_at) AS created
    INTO first
    FROM eventkit_event AS e
    WHERE e.topic = $1 AND e.id > $2
    ORDER BY e.id
    LIMIT 1;
    RETURN QUERY SELECT
        coalesce(first.id <= settled, false) OR (
            $3 > 0
            AND NOT EXISTS (
                SELECT FROM eventkit_event AS e WHERE e.id = $3 AND e.topic = $1 AND eventkit_ms(e.created_at) <= $4
            )
            AND NOT EXISTS (SELECT FROM eventkit_topic AS t WHERE t.name = $1 AND t.pruned_to >= $3)
        ),
        CASE WHEN first.id > settled THEN first.now + greatest(2, least(1000, (first.now - first.created) / 10)) END,
        coalesce(first.now, 0);
END
$$

-- The position from which on later events are published: the last settled event, and on further rows the unsettled
-- ones that are visible already.
CREATE FUNCTION eventkit_latest_event(topic text) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
BEGIN
    RETURN QUERY
    SELECT coalesce((SELECT max(e.id) FROM eventkit_event AS e WHERE e.topic = $1 AND e.id <= settled), 0)
    UNION ALL
    SELECT e.id FROM eventkit_event AS e WHERE e.topic = $1 AND e.id > settled;
END
$$

CREATE FUNCTION eventkit_head(topic text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
BEGIN
    RETURN greatest(
        (SELECT max(e.id) FROM eventkit_event AS e WHERE e.topic = $1 AND e.id <= settled),
        (SELECT t.pruned_to FROM eventkit_topic AS t WHERE t.name = $1),
        0
    );
END
$$

-- The offset before the first event created at or after a time.  Concurrent publishers draw offsets and times in
-- slightly different orders, so a binary search finds a place a minute before, and a scan the rest.
CREATE FUNCTION eventkit_offset_at(topic text, moment timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
    low bigint := coalesce((SELECT min(e.id) FROM eventkit_event AS e WHERE e.topic = $1), 1) - 1;
    high bigint := coalesce((SELECT max(e.id) FROM eventkit_event AS e WHERE e.topic = $1 AND e.id <= settled), 0);
    head bigint := high;
    middle bigint;
BEGIN
    WHILE high - low > 1 LOOP
        middle := low + (high - low) / 2;
        IF $2 - interval '1 minute' > (
            SELECT e.created_at FROM eventkit_event AS e
            WHERE e.topic = $1 AND e.id <= middle
            ORDER BY e.id DESC
            LIMIT 1
        ) THEN
            low := middle;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN coalesce(
        (
            SELECT e.id - 1 FROM eventkit_event AS e
            WHERE e.topic = $1 AND e.id > low AND e.id <= settled AND e.created_at >= $2
            ORDER BY e.id
            LIMIT 1
        ),
        head
    );
END
$$

-- Channels.

CREATE FUNCTION eventkit_tell(channel text, payload json, headers json) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    stirred boolean := eventkit_stir('notification', $1);
    notified bigint;
BEGIN
    INSERT INTO eventkit_notification (id, channel, payload, headers)
    VALUES (nextval('eventkit_notification_id_seq'), $1, $2, $3)
    RETURNING id INTO notified;
    RETURN notified;
END
$$

CREATE FUNCTION eventkit_notify(channel text, payload json, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN eventkit_tell(
        eventkit_check_name('channel', $1), eventkit_check_payload($2), eventkit_check_headers($3)
    );
END
$$

COMMENT ON FUNCTION eventkit_notify IS
    'Notifies the listeners when this transaction commits, and returns the number of the notification.'

CREATE FUNCTION eventkit_notifications_after(channels text[], after bigint, "limit" bigint)
RETURNS TABLE (id bigint, channel text, payload text, headers text, created_ms bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('notification', $1);
BEGIN
    RETURN QUERY
    SELECT n.id, n.channel, n.payload::text, n.headers::text, eventkit_ms(n.created_at)
    FROM eventkit_notification AS n
    WHERE n.channel = ANY ($1) AND n.id > $2 AND n.id <= settled
    ORDER BY n.id
    LIMIT $3;
END
$$

CREATE FUNCTION eventkit_notifications_ahead(channels text[], after bigint, created bigint)
RETURNS TABLE (ready boolean, due bigint, now bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('notification', $1);
    first record;
BEGIN
    SELECT n.id, eventkit_ms(clock_timestamp()) AS now, eventkit_ms(n.created_at) AS created
    INTO first
    FROM unnest($1) AS c (channel) CROSS JOIN LATERAL (
        SELECT m.id, m.created_at
        FROM eventkit_notification AS m
        WHERE m.channel = c.channel AND m.id > $2
        ORDER BY m.id
        LIMIT 1
    ) AS n
    ORDER BY n.id
    LIMIT 1;
    RETURN QUERY SELECT
        coalesce(first.id <= settled, false) OR (
            $3 > 0
            AND NOT EXISTS (SELECT FROM eventkit_notification AS n WHERE n.id = $2 AND eventkit_ms(n.created_at) <= $3)
        ),
        CASE WHEN first.id > settled THEN first.now + greatest(2, least(1000, (first.now - first.created) / 10)) END,
        coalesce(first.now, 0);
END
$$

CREATE FUNCTION eventkit_latest_notification(channels text[]) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('notification', $1);
BEGIN
    RETURN QUERY
    SELECT settled
    UNION ALL
    SELECT n.id FROM eventkit_notification AS n WHERE n.channel = ANY ($1) AND n.id > settled;
END
$$

-- Queues.

-- The number of tasks that count towards max_size.
CREATE FUNCTION eventkit_size(queue text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT
        (SELECT count(*) FROM eventkit_task AS t WHERE t.queue = $1 AND t.state = 'ready')
        + (SELECT count(*) FROM eventkit_task AS t WHERE t.queue = $1 AND t.state IN ('scheduled', 'leased') AND t.wake_at IS NOT NULL)
$$

-- The queue's bound and the number of tasks that count towards it; no row without a bound.  The caller holds the
-- bound until the end of the transaction.  The row is written, not only locked, so that a transaction with a
-- snapshot older than another enqueue fails to serialize instead of counting too few.
CREATE FUNCTION eventkit_room(queue text) RETURNS TABLE (max_size bigint, size bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    bound bigint;
BEGIN
    UPDATE eventkit_queue AS q SET paused = q.paused
    WHERE q.name = $1 AND q.max_size IS NOT NULL
    RETURNING q.max_size INTO bound;
    IF FOUND THEN
        RETURN QUERY SELECT bound, eventkit_size($1);
    END IF;
END
$$

-- Move the beginning of the queue's priorities up to the first ready task of each, but not beyond a time shortly before
-- the oldest transaction in progress began, because that may add a task due since then.  Sometimes, less often the
-- longer it takes, the scan starts from the beginning, for tasks added by a plain INSERT.
CREATE FUNCTION eventkit_raise(queue text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    began timestamptz := clock_timestamp();
    safe timestamptz := CASE
        WHEN current_setting('transaction_isolation') = 'read committed'
        THEN eventkit_moment(eventkit_settled('task', ARRAY[$1])) - interval '500 ms'
        ELSE '-infinity'  -- Commits since the snapshot are invisible.
    END;
    thorough boolean := NOT EXISTS (
        SELECT FROM eventkit_low AS l WHERE l.queue = $1 AND l.look_at > began AND l.wake_at <= began
    );
BEGIN
    WITH RECURSIVE
    old AS MATERIALIZED (
        SELECT l.ctid AS place, l.priority, l.run_at, l.wake_at, l.look_at FROM eventkit_low AS l WHERE l.queue = $1
        FOR UPDATE SKIP LOCKED
    ),
    first (wake_at) AS (
        SELECT min(t.wake_at)
        FROM
            (VALUES ('scheduled'), ('leased'), ('ready')) AS s (state)
            CROSS JOIN LATERAL (
                SELECT w.wake_at FROM eventkit_task AS w
                WHERE
                    w.queue = $1 AND w.state = s.state AND w.wake_at <= safe
                    AND w.wake_at >= (
                        SELECT CASE WHEN thorough THEN '-infinity' ELSE coalesce(min(o.wake_at), '-infinity') END
                        FROM old AS o
                    )
                ORDER BY w.wake_at
                LIMIT 1
            ) AS t
    ),
    gone AS (DELETE FROM eventkit_low WHERE ctid = ANY (ARRAY(SELECT place FROM old))),
    -- The first ready task of each priority: dead entries before it are scanned only once.
    found (priority, run_at) AS (
        (
            SELECT t.priority, t.run_at FROM eventkit_task AS t
            WHERE thorough AND t.queue = $1 AND t.state = 'ready'
            ORDER BY t.priority DESC, t.run_at
            LIMIT 1
        )
        UNION ALL
        SELECT n.priority, n.run_at
        FROM
            found AS f
            CROSS JOIN LATERAL (
                SELECT t.priority, t.run_at FROM eventkit_task AS t
                WHERE t.queue = $1 AND t.state = 'ready' AND t.priority < f.priority
                ORDER BY t.priority DESC, t.run_at
                LIMIT 1
            ) AS n
    ),
    lowest (priority, run_at, look_at) AS (
        SELECT
            o.priority,
            CASE
                WHEN thorough THEN (SELECT f.run_at FROM found AS f WHERE f.priority = o.priority)
                ELSE (
                    SELECT t.run_at FROM eventkit_task AS t
                    WHERE t.queue = $1 AND t.state = 'ready' AND t.priority = o.priority AND t.run_at >= o.run_at
                    ORDER BY t.run_at
                    LIMIT 1
                )
            END,
            o.look_at
        FROM (SELECT priority, min(run_at) AS run_at, max(look_at) AS look_at FROM old GROUP BY priority) AS o
        UNION ALL
        SELECT f.priority, f.run_at, NULL FROM found AS f
        WHERE f.priority NOT IN (SELECT o.priority FROM old AS o)
        UNION ALL
        SELECT 0, NULL, NULL
        WHERE NOT EXISTS (SELECT FROM eventkit_low AS l WHERE l.queue = $1) AND NOT EXISTS (SELECT FROM found WHERE priority = 0)
    )
    INSERT INTO eventkit_low (queue, priority, run_at, wake_at, raise_at, look_at)
    SELECT
        $1, w.priority, least(safe, w.run_at), least(safe, (SELECT f.wake_at FROM first AS f)),
        clock_timestamp() + greatest(interval '100 ms', 10 * (clock_timestamp() - began)),
        CASE
            WHEN thorough THEN clock_timestamp() + greatest(interval '1 s', 100 * (clock_timestamp() - began))
            ELSE w.look_at
        END
    FROM lowest AS w;
    RETURN true;
END
$$

-- Add a task that is due now and has no key, if there is room for it.  Mostly there is no bound, and claims scan the
-- priority already: then it is one statement.
CREATE FUNCTION eventkit_add(queue text, payload json, headers json, priority integer, max_attempts bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    marked boolean := eventkit_mark('task', $1);
    asleep boolean;
    added bigint;
BEGIN
    INSERT INTO eventkit_task (queue, payload, headers, priority, max_attempts)
    SELECT $1, $2, $3, $4, $5
    WHERE
        NOT EXISTS (SELECT FROM eventkit_queue AS q WHERE q.name = $1 AND q.max_size IS NOT NULL)
        AND EXISTS (SELECT FROM eventkit_low AS l WHERE l.queue = $1 AND l.priority = $4)
    RETURNING id, marked AND (
        current_setting('transaction_isolation') <> 'read committed'
        OR EXISTS (SELECT FROM eventkit_sleeper AS s WHERE s.name = 'task:' || $1 AND s.until > clock_timestamp())
    ) INTO added, asleep;
    IF added IS NULL THEN
        IF EXISTS (SELECT FROM eventkit_room($1) AS r WHERE r.size >= r.max_size) THEN
            RETURN NULL;
        END IF;
        IF NOT EXISTS (SELECT FROM eventkit_low AS l WHERE l.queue = $1 AND l.priority = $4) THEN
            INSERT INTO eventkit_low (queue, priority) VALUES ($1, $4);
        END IF;
        INSERT INTO eventkit_task (queue, payload, headers, priority, max_attempts)
        VALUES ($1, $2, $3, $4, $5)
        RETURNING id INTO added;
        asleep := marked AND (
            current_setting('transaction_isolation') <> 'read committed'
            OR EXISTS (SELECT FROM eventkit_sleeper AS s WHERE s.name = 'task:' || $1 AND s.until > clock_timestamp())
        );
    END IF;
    IF asleep THEN
        PERFORM eventkit_wake('task', $1);
    END IF;
    RETURN added;
END
$$

-- Add a task of any kind; return its id, or that of the one which holds the key.  Durations in seconds.
CREATE FUNCTION eventkit_enqueue(
    queue text, payload json, priority integer DEFAULT 0, delay double precision DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL, expires double precision DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, key text DEFAULT NULL, headers json DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    checked json := eventkit_check_payload($2);
    names json := eventkit_check_headers($10);
    unique_key text := CASE WHEN $9 IS NOT NULL THEN eventkit_check_name('key', $9, 1000) END;
    attempts bigint := CASE WHEN $6 IS NOT NULL THEN eventkit_check_count('max_attempts', $6, 1) END;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    due timestamptz := coalesce(
        now + eventkit_check_seconds('delay', $4, -3162240000000) * interval '1 ms', date_trunc('milliseconds', $5), now
    );
    ends timestamptz := coalesce(
        now + eventkit_check_seconds('expires', $7, -3162240000000) * interval '1 ms', date_trunc('milliseconds', $8)
    );
    best integer := coalesce($3, 0);
    stirred boolean := eventkit_stir('task', eventkit_check_name('queue', $1));
    bound bigint := (SELECT r.max_size FROM eventkit_room($1) AS r);
    added bigint;
BEGIN
    IF $4 IS NOT NULL AND $5 IS NOT NULL THEN
        RAISE EXCEPTION 'a task is due after delay seconds or at run_at: pass one of them'
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO eventkit_task (
        queue, payload, priority, max_attempts, key, headers, state, run_at, wake_at, expires_at, enqueued_at
    )
    VALUES (
        $1, checked, best, attempts, unique_key, names,
        CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
        due,
        eventkit_wakes_at(due, ends, now),
        ends,
        now
    )
    RETURNING id INTO added;
    IF added IS NULL THEN
        RETURN (SELECT k.task_id FROM eventkit_key AS k WHERE k.queue = $1 AND k.key = $9);
    END IF;
    IF (CASE WHEN bound IS NOT NULL THEN eventkit_size($1) > bound END) THEN  -- Counted only with a bound.
        RAISE EXCEPTION
            'queue % has reached its max_size: run more workers, or configure a larger max_size', quote_literal($1)
        USING ERRCODE = 'configuration_limit_exceeded';
    END IF;
    INSERT INTO eventkit_low (queue, priority, run_at)
    SELECT $1, best, CASE WHEN due < now THEN due ELSE '-infinity' END
    WHERE due < now OR NOT EXISTS (SELECT FROM eventkit_low AS l WHERE l.queue = $1 AND l.priority = best);
    RETURN added;
END
$$

COMMENT ON FUNCTION eventkit_enqueue IS
    'Enqueues a task, in this transaction, and returns its id, or that of the task with the key. Delay and expires in seconds.'

-- The settings and numbers that a claim needs.  A queue with limits is locked for the claim, and counted after that,
-- in a later snapshot.  ``(SELECT 'ready')`` is hidden from the planner, as in claim.sql.
CREATE FUNCTION eventkit_gate(queue text) RETURNS TABLE (
    paused boolean, lease bigint, max_attempts bigint, rate double precision, burst double precision,
    tokens double precision, refilled_at bigint, max_running bigint, running bigint, due boolean, now bigint
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    mark timestamptz;
    raised boolean;
BEGIN
    IF NOT EXISTS (
        SELECT FROM eventkit_low AS l WHERE l.queue = $1 AND l.raise_at > moment AND l.wake_at <= moment
    ) THEN
        raised := eventkit_raise($1);
    END IF;
    PERFORM FROM eventkit_queue AS q
    WHERE q.name = $1 AND (q.rate IS NOT NULL OR q.max_running IS NOT NULL)
    FOR UPDATE;
    moment := date_trunc('milliseconds', clock_timestamp());
    mark := (
        SELECT coalesce(min(l.wake_at), '-infinity') FROM eventkit_low AS l
        WHERE l.queue = $1 AND l.raise_at > moment - interval '1 s' AND l.wake_at <= moment
    );
    RETURN QUERY
    SELECT
        coalesce(q.paused, false), coalesce(q.lease, 300000), coalesce(q.max_attempts, 3),
        q.rate, q.burst, q.tokens, eventkit_ms(q.refilled_at), q.max_running,
        CASE WHEN q.max_running IS NOT NULL THEN (
            SELECT count(*) FROM eventkit_task AS t WHERE t.queue = $1 AND t.state = 'leased' AND t.wake_at > moment
        ) END,
        EXISTS (
            SELECT FROM eventkit_task AS t
            WHERE t.queue = $1 AND t.state = 'scheduled' AND t.wake_at <= moment AND t.wake_at >= mark
        )
        OR EXISTS (
            SELECT FROM eventkit_task AS t
            WHERE t.queue = $1 AND t.state = 'leased' AND t.wake_at <= moment AND t.wake_at >= mark
        )
        OR EXISTS (
            SELECT FROM eventkit_task AS t
            WHERE t.queue = $1 AND t.state = (SELECT 'ready'::text) AND t.wake_at <= moment AND t.wake_at >= mark
        ),
        eventkit_ms(moment)
    FROM (SELECT) AS one LEFT JOIN eventkit_queue AS q ON q.name = $1;
END
$$

-- The lock for a lane of a queue.  A transaction that finds the next task of a lane holds it until its end, and reads
-- in a later snapshot: claims that find it taken skip the lane, and a transaction that ends a task waits for it.
CREATE FUNCTION eventkit_lane(queue text, lane text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT hashtextextended($1 || ':' || $2, 'eventkit_task_id_seq'::regclass::oid::bigint)
$$

-- Release the first task of each lane, if it was held back.  Rows locked by other transactions are released by those.
CREATE FUNCTION eventkit_unblock(queue text, lanes text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    stirred boolean := eventkit_stir('task', $1);
    lane text;
BEGIN
    FOR lane IN SELECT DISTINCT l FROM unnest($2) AS l ORDER BY l LOOP
        PERFORM pg_advisory_xact_lock(eventkit_lane($1, lane));
    END LOOP;
    WITH
    first AS MATERIALIZED (
        SELECT t.id
        FROM
            unnest($2) AS l (lane)
            CROSS JOIN LATERAL (
                SELECT least(
                    (SELECT min(w.id) FROM eventkit_task AS w WHERE w.queue = $1 AND w.lane = l.lane AND w.state = 'scheduled'),
                    (SELECT min(w.id) FROM eventkit_task AS w WHERE w.queue = $1 AND w.lane = l.lane AND w.state = 'ready'),
                    (SELECT min(w.id) FROM eventkit_task AS w WHERE w.queue = $1 AND w.lane = l.lane AND w.state = 'leased')
                ) AS id
            ) AS head
            JOIN eventkit_task AS t ON t.id = head.id
        WHERE t.state = 'scheduled' AND t.run_at <= date_trunc('milliseconds', clock_timestamp())
        FOR UPDATE OF t SKIP LOCKED
    ),
    freed AS (
        UPDATE eventkit_task
        SET state = 'ready', wake_at = eventkit_wakes_at(NULL, expires_at, date_trunc('milliseconds', clock_timestamp()))
        WHERE id = ANY (ARRAY(SELECT id FROM first))
        RETURNING priority, run_at
    )
    INSERT INTO eventkit_low (queue, priority, run_at)
    SELECT $1, f.priority, min(f.run_at) FROM freed AS f GROUP BY f.priority;
    RETURN true;
END
$$

-- The history of tasks.  The triggers that call these functions are created when the first queue keeps its history
-- and dropped when the last one stops, because they slow down every other change of tasks.

-- Whether the triggers are needed after a queue's setting has changed, and the obstacle for a role that may not change
-- them.  The caller excludes other callers from then on.  Before it creates or drops them it locks the table, before
-- any row of it, to avoid a deadlock.
CREATE FUNCTION eventkit_hold_history(queue text, history boolean)
RETURNS TABLE (needed boolean, there boolean, obstacle text)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    alone boolean := pg_advisory_xact_lock(
        hashtextextended('eventkit.tasks', 'eventkit_event_id_seq'::regclass::oid::bigint)
    ) IS NULL;
    tasks CONSTANT regclass := 'eventkit_task'::regclass;
    owner name := (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = tasks);
BEGIN
    needed := $2 OR EXISTS (SELECT FROM eventkit_queue AS q WHERE q.history AND q.name <> $1);
    there := EXISTS (
        SELECT FROM pg_trigger AS t WHERE t.tgrelid = tasks AND t.tgfoid = 'eventkit_record_enqueued'::regproc
    );
    IF needed AND NOT there AND NOT has_table_privilege(tasks, 'TRIGGER') THEN
        obstacle := format(
            'a history is kept by triggers on %s, which role %I may not create: GRANT TRIGGER ON %s TO %I, or let its '
            'owner %I call configure(history=True)',
            tasks, current_user, tasks, current_user, owner
        );
    ELSIF there AND NOT needed AND NOT pg_has_role(owner, 'USAGE') THEN
        obstacle := format('only %I, who owns %s, can drop its triggers', owner, tasks);
    ELSIF needed AND NOT there THEN
        LOCK TABLE eventkit_task IN SHARE ROW EXCLUSIVE MODE;
    ELSIF there AND NOT needed THEN
        LOCK TABLE eventkit_task IN ACCESS EXCLUSIVE MODE;
    END IF;
    RETURN NEXT;
END
$$

-- Publish the events of tasks: a key and an object for each.
CREATE FUNCTION eventkit_record(keys text[], steps json[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    stirred boolean := eventkit_stir('event', 'eventkit.tasks');
BEGIN
    INSERT INTO eventkit_event (id, topic, key, payload)
    SELECT nextval('eventkit_event_id_seq'), 'eventkit.tasks', s.key, s.step
    FROM unnest($1, $2) AS s (key, step);
    RETURN true;
END
$$

CREATE FUNCTION eventkit_record_enqueued() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    keys text[];
    steps json[];
    recorded boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM became AS t JOIN eventkit_queue AS q ON q.name = t.queue WHERE q.history) THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(s.queue || ':' || s.id), array_agg(row_to_json(s))
    INTO keys, steps
    FROM (
        SELECT
            t.queue, t.id, 'enqueued' AS kind, t.attempt, NULL::text AS worker, t.priority, eventkit_ms(t.run_at) AS run_at,
            NULL::bigint AS wait_ms, NULL::bigint AS run_ms, NULL::text AS reason, NULL::text AS error
        FROM became AS t JOIN eventkit_queue AS q ON q.name = t.queue
        WHERE q.history
        ORDER BY t.id
    ) AS s;
    IF keys IS NOT NULL THEN
        recorded := eventkit_record(keys, steps);
    END IF;
    RETURN NULL;
END
$$

-- A death that ends an attempt is two events.  Promotion by the clock or by the order of a lane is none.
CREATE FUNCTION eventkit_record_moved() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    moment timestamptz := date_trunc('milliseconds', clock_timestamp());
    keys text[];
    steps json[];
    recorded boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM became AS t JOIN eventkit_queue AS q ON q.name = t.queue WHERE q.history) THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(s.queue || ':' || s.id), array_agg(row_to_json(s))
    INTO keys, steps
    FROM (
        SELECT
            t.queue, t.id, k.kind,
            CASE WHEN k.kind IN ('released', 'snoozed') THEN o.attempt ELSE t.attempt END AS attempt,
            CASE WHEN 'leased' IN (o.state, t.state) THEN t.worker END AS worker,
            t.priority, eventkit_ms(t.run_at) AS run_at,
            CASE
                WHEN k.kind = 'started'
                THEN greatest(0, eventkit_ms(t.claimed_at) - eventkit_ms(greatest(t.run_at, t.enqueued_at)))
            END AS wait_ms,
            CASE
                WHEN k.kind = 'lapsed' THEN greatest(0, eventkit_ms(o.wake_at) - eventkit_ms(o.claimed_at))
                WHEN o.state = 'leased' AND k.kind NOT IN ('dead', 'expired')
                THEN greatest(0, eventkit_ms(moment) - eventkit_ms(o.claimed_at))
            END AS run_ms,
            t.reason,
            CASE
                WHEN o.state = 'leased' AND k.kind NOT IN ('succeeded', 'released', 'snoozed') THEN left(t.error, 2000)
            END AS error
        FROM
            became AS t
            JOIN was AS o ON o.id = t.id
            JOIN eventkit_queue AS q ON q.name = t.queue
            CROSS JOIN LATERAL (
                SELECT CASE
                    WHEN t.state = 'leased' THEN 'started'
                    WHEN t.state = 'done' THEN 'succeeded'
                    WHEN o.state = 'dead' THEN 'requeued'
                    WHEN o.state <> 'leased' THEN NULL
                    WHEN t.attempt < o.attempt THEN CASE WHEN t.state = 'scheduled' THEN 'snoozed' ELSE 'released' END
                    WHEN t.lapsed THEN 'lapsed'
                    ELSE CASE WHEN t.state = 'dead' THEN 'failed' ELSE 'retried' END
                END
                UNION ALL
                SELECT CASE WHEN t.state = 'dead' THEN CASE WHEN t.reason = 'expired' THEN 'expired' ELSE 'dead' END END
            ) AS k (kind)
        WHERE
            q.history AND o.state <> t.state AND k.kind IS NOT NULL
            AND NOT (o.state IN ('scheduled', 'ready') AND t.state IN ('scheduled', 'ready'))
        ORDER BY t.id, k.kind IN ('dead', 'expired')
    ) AS s;
    IF keys IS NOT NULL THEN
        recorded := eventkit_record(keys, steps);
    END IF;
    RETURN NULL;
END
$$

-- A claimed task that is deleted with its token was finished, unless its whole queue was abandoned.
CREATE FUNCTION eventkit_record_gone() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    moment timestamptz := date_trunc('milliseconds', clock_timestamp());
    abandoned text := current_setting('eventkit.abandoned', true);
    keys text[];
    steps json[];
    recorded boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM was AS t JOIN eventkit_queue AS q ON q.name = t.queue WHERE q.history) THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(s.queue || ':' || s.id), array_agg(row_to_json(s))
    INTO keys, steps
    FROM (
        SELECT
            t.queue, t.id,
            CASE
                WHEN t.state = 'dead' THEN 'purged'
                WHEN t.state = 'leased' AND t.token IS NOT NULL AND t.queue IS DISTINCT FROM abandoned THEN 'succeeded'
                ELSE 'cancelled'
            END AS kind,
            t.attempt, CASE WHEN t.state = 'leased' THEN t.worker END AS worker, t.priority,
            eventkit_ms(t.run_at) AS run_at, NULL::bigint AS wait_ms,
            CASE
                WHEN t.state = 'leased' THEN greatest(0, eventkit_ms(moment) - eventkit_ms(t.claimed_at))
            END AS run_ms,
            NULL::text AS reason, NULL::text AS error
        FROM was AS t JOIN eventkit_queue AS q ON q.name = t.queue
        WHERE q.history AND t.state <> 'done'
        ORDER BY t.id
    ) AS s;
    IF keys IS NOT NULL THEN
        recorded := eventkit_record(keys, steps);
    END IF;
    RETURN NULL;
END
$$
