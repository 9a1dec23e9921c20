-- Marks of transactions in progress, the wakes of waiters, and times.  Every other function may call these.

-- The advisory lock for a topic, channel, queue or other subject of a wait.
CREATE OR REPLACE FUNCTION eventkit_subject(subject text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (hashtextextended($1, 'eventkit_event_id_seq'::regclass::oid::bigint) & 2147483647)::integer
$$

-- The channel on which the listeners of a schema listen.
CREATE OR REPLACE FUNCTION eventkit_notify_channel() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT 'eventkit:' || eventkit_subject('bell')
$$

-- The last number drawn for a kind; 0 before the first.  Kinds without a sequence use times.
CREATE OR REPLACE FUNCTION eventkit_drawn(kind text) RETURNS bigint
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
CREATE OR REPLACE FUNCTION eventkit_mark(kind text, name text) RETURNS boolean
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
CREATE OR REPLACE FUNCTION eventkit_notify_waiters(kind text, name text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF current_setting('eventkit.notify_off', true) IS DISTINCT FROM 'on' THEN
        PERFORM pg_notify(eventkit_notify_channel(), $1 || ':' || $2);
    END IF;
END
$$

-- Wake the waiters for a name, and for a queue those for the queues that share a limit with it.  Every change that a
-- waiter may wait for calls this before the commit, or does the same around its statement: leave a mark, look for
-- sleepers in a later snapshot, and notify them.  Where no later snapshot is available, a sleeper may be missing from
-- it, and the channel is notified without looking.
CREATE OR REPLACE FUNCTION eventkit_wake(kind text, name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    names text[] := ARRAY[$2];
    one text;
BEGIN
    IF $1 = 'task' THEN
        names := names || ARRAY(
            SELECT DISTINCT o.queue
            FROM eventkit_cluster_limit AS l JOIN eventkit_cluster_limit AS o ON o.name = l.name
            WHERE l.queue = $2 AND o.queue <> $2
        );
    END IF;
    FOREACH one IN ARRAY names LOOP
        IF eventkit_mark($1, one) THEN  -- A separate statement, so that the next one has a later snapshot.
            IF
                current_setting('transaction_isolation') <> 'read committed'
                OR EXISTS (SELECT FROM eventkit_sleeper AS s WHERE s.name = $1 || ':' || one AND s.until > clock_timestamp())
            THEN
                PERFORM eventkit_notify_waiters($1, one);
            END IF;
        END IF;
    END LOOP;
    RETURN true;
END
$$

-- The highest number up to which every transaction on these names has ended.  Read rows up to it in a later snapshot,
-- never in an earlier one.  A standby does not have the locks of the primary, so the marks are invisible there and a
-- reader would skip events.
CREATE OR REPLACE FUNCTION eventkit_settled(kind text, names text[]) RETURNS bigint
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
CREATE OR REPLACE FUNCTION eventkit_under_way(subjects text[]) RETURNS SETOF text
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
CREATE OR REPLACE FUNCTION eventkit_ms(moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT (date_part('epoch', $1) * 1000)::bigint
$$

CREATE OR REPLACE FUNCTION eventkit_moment(milliseconds bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT to_timestamp($1 / 1000.0)
$$

-- When a task with these due and expiry times changes by itself, if that is set now.  Never before now, even if the
-- task has expired already, because claims do not scan further back (eventkit_low_water).
CREATE OR REPLACE FUNCTION eventkit_wakes_at(due timestamptz, expires timestamptz, now timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN $2 < $3 THEN $3 WHEN $1 > $3 THEN least($1, $2) ELSE $2 END
$$

-- Whether another transaction in progress has locked or changed a row with this xmax.  An ended transaction stays in
-- xmax; that of a savepoint has no lock, but a status.  Of the 64 bits xmax has the lower 32.
CREATE OR REPLACE FUNCTION eventkit_in_hand(holder xid) RETURNS boolean
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
CREATE OR REPLACE FUNCTION eventkit_next(kind text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    woken boolean := eventkit_wake($1, '*');
BEGIN
    RETURN nextval(CASE $1
        WHEN 'event' THEN 'eventkit_event_id_seq'::regclass
        ELSE 'eventkit_notification_id_seq'::regclass
    END);
END
$$
