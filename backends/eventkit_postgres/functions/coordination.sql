-- Locks, limits and results.

-- Return the fence of a lock that was acquired, or NULL.  A refused attempt only reads: a conflicting insert would lock
-- the row, which is a write and a commit.  A lock taken by a clock that was ahead also refuses the attempt, which may
-- wait for the row and shortens it to its ttl from now.
CREATE OR REPLACE FUNCTION eventkit_take_lock(name text, token bigint, holder text, ttl bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    acquired bigint;
BEGIN
    INSERT INTO eventkit_lock AS l (name, fence, token, holder, ttl, expires_at)
    SELECT $1, 1, $2, $3, $4, now + $4 * interval '1 ms'
    WHERE NOT EXISTS (
        SELECT FROM eventkit_lock
        WHERE name = $1 AND expires_at > now AND expires_at <= now + (ttl + 1000) * interval '1 ms'
    )
    ON CONFLICT (name) DO UPDATE
    SET
        fence = CASE WHEN l.expires_at > now THEN l.fence ELSE l.fence + 1 END,
        token = CASE WHEN l.expires_at > now THEN l.token ELSE excluded.token END,
        holder = CASE WHEN l.expires_at > now THEN l.holder ELSE excluded.holder END,
        ttl = CASE WHEN l.expires_at > now THEN l.ttl ELSE excluded.ttl END,
        expires_at = CASE
            WHEN l.expires_at > now
            THEN date_trunc('milliseconds', clock_timestamp()) + l.ttl * interval '1 ms'
            ELSE excluded.expires_at
        END
    WHERE
        (l.expires_at > now) IS NOT TRUE
        OR l.expires_at > clock_timestamp() + (l.ttl + 1000) * interval '1 ms'
    RETURNING CASE WHEN token = $2 THEN fence END
    INTO acquired;
    RETURN acquired;
END
$$

CREATE OR REPLACE FUNCTION eventkit_lock_acquire(name text, ttl double precision DEFAULT 60) RETURNS json
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    token bigint := eventkit_token();
    fence bigint := eventkit_take_lock(
        eventkit_check_name('lock', $1), token, session_user || ':' || pg_backend_pid(),
        eventkit_check_seconds('ttl', coalesce($2, 60), 1)
    );
BEGIN
    RETURN CASE WHEN fence IS NOT NULL THEN json_build_object('name', $1, 'token', token::text, 'fence', fence) END;
END
$$

COMMENT ON FUNCTION eventkit_lock_acquire IS
    'Acquires a lock for a number of seconds, and returns an object with its token and its fence; NULL if it is held already.'

CREATE OR REPLACE FUNCTION eventkit_free_lock(name text, token bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    woken boolean;
BEGIN
    UPDATE eventkit_lock
    SET token = NULL, holder = NULL, expires_at = NULL
    WHERE name = $1 AND token = $2 AND expires_at > date_trunc('milliseconds', clock_timestamp())
    RETURNING eventkit_wake('lock', name)
    INTO woken;
    RETURN FOUND;
END
$$

CREATE OR REPLACE FUNCTION eventkit_lock_release(name text, token text) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_free_lock(eventkit_check_name('lock', $1), $2::bigint)
$$

COMMENT ON FUNCTION eventkit_lock_release IS
    'Releases a lock; returns false if it was no longer held.'

-- Count a call in a window; return whether there was room.  Windows follow the clock: a window of a minute begins with
-- the clock's minute.  A call that waited for the row may find it in a later window than the time of the call, and is
-- counted there.  A refused call mostly only reads: a conflicting insert would lock the row, which is a write and a
-- commit.  A count from a clock that was ahead by more than a second starts again with an empty window.
CREATE OR REPLACE FUNCTION eventkit_count_call(name text, per bigint, "limit" bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
BEGIN
    INSERT INTO eventkit_rate AS r (name, per, amount, counted_at, until)
    SELECT $1, $2, 1, now, eventkit_moment(eventkit_ms(now) - eventkit_ms(now) % $2 + $2)
    WHERE NOT EXISTS (
        SELECT FROM eventkit_rate
        WHERE name = $1 AND per = $2 AND amount >= $3 AND until > now AND until <= now + ($2 + 1000) * interval '1 ms'
    )
    ON CONFLICT (name, per) DO UPDATE
    SET
        amount = CASE
            WHEN now < r.until AND r.until <= clock_timestamp() + (r.per + 1000) * interval '1 ms' THEN r.amount + 1
            ELSE 1
        END,
        counted_at = now,
        until = CASE
            WHEN now < r.until AND r.until <= clock_timestamp() + (r.per + 1000) * interval '1 ms' THEN r.until
            ELSE excluded.until
        END
    WHERE
        r.amount < $3 OR now >= r.until
        OR r.until > clock_timestamp() + (r.per + 1000) * interval '1 ms';
    RETURN FOUND;
END
$$

CREATE OR REPLACE FUNCTION eventkit_rate_limit(name text, count bigint, per double precision) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_count_call(
        eventkit_check_name('limit', $1),
        eventkit_check_given('per', eventkit_check_seconds('per', $3, 1)),
        eventkit_check_count('count', $2, 1)
    )
$$

COMMENT ON FUNCTION eventkit_rate_limit IS
    'Counts a call in the current window of a number of seconds; returns false if the limit is reached.'

-- Save a value for a number of milliseconds.  The id is JSON: a task's number, or a string in quotes.
CREATE OR REPLACE FUNCTION eventkit_store_result(id text, value json, ttl bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    woken boolean;
BEGIN
    INSERT INTO eventkit_result (id, value, expires_at)
    VALUES ($1, $2, date_trunc('milliseconds', clock_timestamp()) + $3 * interval '1 ms')
    ON CONFLICT (id) DO UPDATE
    SET value = excluded.value, expires_at = excluded.expires_at
    RETURNING eventkit_wake('result', id)
    INTO woken;
    RETURN true;
END
$$

-- Save the result of a task for a number of milliseconds; without one for an hour, or for as long as the queue keeps done
-- tasks if that is longer.
CREATE OR REPLACE FUNCTION eventkit_save_task_result(id text, value json, queue text, ttl bigint DEFAULT NULL) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_store_result(
        $1, $2, coalesce($4, greatest(3600000, (SELECT keep_done FROM eventkit_queue WHERE name = $3)))
    )
$$

CREATE OR REPLACE FUNCTION eventkit_save_result(id text, value json, ttl double precision) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_store_result(
        $1, eventkit_check_payload($2), eventkit_check_seconds('ttl', coalesce($3, 3600), 1)
    )
$$

CREATE OR REPLACE FUNCTION eventkit_result_save(id text, value json, ttl double precision DEFAULT 3600) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_save_result(to_json(eventkit_check_name('result', $1))::text, $2, $3)
$$

CREATE OR REPLACE FUNCTION eventkit_result_save(id bigint, value json, ttl double precision DEFAULT 3600) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_save_result(eventkit_check_count('id', $1, 0)::text, $2, $3)
$$

COMMENT ON FUNCTION eventkit_result_save(text, json, double precision) IS
    'Saves a value under a name for a number of seconds.'

COMMENT ON FUNCTION eventkit_result_save(bigint, json, double precision) IS
    'Saves a value under the id of a task for a number of seconds.'

CREATE OR REPLACE FUNCTION eventkit_result_get(id text) RETURNS json
LANGUAGE sql VOLATILE
AS $$
    SELECT r.value FROM eventkit_result AS r
    WHERE r.id = to_json(eventkit_check_name('result', $1))::text AND r.expires_at > date_trunc('milliseconds', clock_timestamp())
$$

CREATE OR REPLACE FUNCTION eventkit_result_get(id bigint) RETURNS json
LANGUAGE sql VOLATILE
AS $$
    SELECT r.value FROM eventkit_result AS r
    WHERE r.id = eventkit_check_count('id', $1, 0)::text AND r.expires_at > date_trunc('milliseconds', clock_timestamp())
$$

COMMENT ON FUNCTION eventkit_result_get(text) IS
    'Returns the value saved under a name; NULL if there is none.'

COMMENT ON FUNCTION eventkit_result_get(bigint) IS
    'Returns the value saved under the id of a task; NULL if there is none.'
