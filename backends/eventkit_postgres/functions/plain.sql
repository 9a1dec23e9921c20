-- The calls of plain SQL that SQLite has as views of the same names.  A task is named by its id and its token, and a lost
-- lease is an error.

CREATE OR REPLACE FUNCTION eventkit_check_held(held boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF NOT $1 THEN
        RAISE EXCEPTION
            'the lease of the task was lost, or the task was finished: roll back what was done for it, and claim with a longer lease'
        USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$$

CREATE OR REPLACE FUNCTION eventkit_do_publish(
    stream text, payload json, key text DEFAULT NULL, headers json DEFAULT NULL, dedup text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_publish($1, $2, $3, $4, $5)
$$

COMMENT ON FUNCTION eventkit_do_publish IS 'The same as eventkit_publish.'

CREATE OR REPLACE FUNCTION eventkit_do_save_offset(stream text, consumer text, "offset" bigint) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_save_offset($1, $2, $3)
$$

COMMENT ON FUNCTION eventkit_do_save_offset IS 'The same as eventkit_save_offset.'

CREATE OR REPLACE FUNCTION eventkit_do_notify(channel text, payload json, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_notify($1, $2, $3)
$$

COMMENT ON FUNCTION eventkit_do_notify IS 'The same as eventkit_notify.'

CREATE OR REPLACE FUNCTION eventkit_do_enqueue(
    queue text, payload json, priority integer DEFAULT 0, delay double precision DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL, expires double precision DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, key text DEFAULT NULL, headers json DEFAULT NULL,
    group_key text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
$$

COMMENT ON FUNCTION eventkit_do_enqueue IS 'The same as eventkit_enqueue.'

CREATE OR REPLACE FUNCTION eventkit_do_claim(
    queue text, worker text, batch bigint DEFAULT 1, lease double precision DEFAULT NULL
) RETURNS TABLE (
    id bigint, payload json, token text, key text, headers json, priority integer, attempt integer, max_attempts bigint,
    run_ms bigint, enqueued_ms bigint, expires_ms bigint, lease_expires_ms bigint, lease_ms bigint, lapsed boolean,
    group_key text
)
LANGUAGE sql VOLATILE
AS $$
    SELECT
        c.id, c.payload::json, c.token::text, c.key, coalesce(c.headers::json, '{}'), c.priority, c.attempt, c.max_attempts,
        c.run_ms, c.enqueued_ms, c.expires_ms, c.lease_expires_ms, c.lease_ms, c.lapsed,
        nullif(c.group_key, '')
    FROM eventkit_claimed(
        eventkit_check_name('queue', $1), eventkit_check_name('worker', $2),
        eventkit_check_count('batch', coalesce($3, 1), 1), eventkit_check_seconds('lease', $4, 0), eventkit_token()
    ) AS c
    ORDER BY c.priority DESC, c.turn, c.run_ms, c.id
$$

COMMENT ON FUNCTION eventkit_do_claim IS 'Leases the best tasks of a queue to a worker for a number of seconds, and returns them.'

-- The task as eventkit_ack and the others take it.
CREATE OR REPLACE FUNCTION eventkit_claim_of(id bigint, token text) RETURNS json
LANGUAGE sql STABLE
AS $$
    SELECT json_build_object(
        'id', $1, 'token', $2, 'queue', coalesce((SELECT t.queue FROM eventkit_task AS t WHERE t.id = $1), '')
    )
$$

CREATE OR REPLACE FUNCTION eventkit_do_ack(id bigint, token text, result json DEFAULT NULL) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_check_held(eventkit_ack(eventkit_claim_of($1, $2), $3))
$$

COMMENT ON FUNCTION eventkit_do_ack IS 'Finishes a claimed task, and saves its result if one is given.'

CREATE OR REPLACE FUNCTION eventkit_do_retry(
    id bigint, token text, delay double precision DEFAULT NULL, error text DEFAULT NULL
) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_check_held(eventkit_retry(eventkit_claim_of($1, $2), $3, $4))
$$

COMMENT ON FUNCTION eventkit_do_retry IS 'Puts a claimed task back, after a number of seconds or by the policy of its queue; after the last attempt it is dead.'

CREATE OR REPLACE FUNCTION eventkit_do_fail(id bigint, token text, error text) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_check_held(eventkit_fail(eventkit_claim_of($1, $2), $3))
$$

COMMENT ON FUNCTION eventkit_do_fail IS 'Marks a claimed task dead.'

CREATE OR REPLACE FUNCTION eventkit_do_extend(id bigint, token text, seconds double precision) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_check_held(eventkit_extend(eventkit_claim_of($1, $2), $3))
$$

COMMENT ON FUNCTION eventkit_do_extend IS 'Lets the lease of a claimed task end a number of seconds from now.'

CREATE OR REPLACE FUNCTION eventkit_do_sweep(queue text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    WHILE eventkit_promote(eventkit_check_name('queue', $1), 1000) > 0 LOOP
    END LOOP;
END
$$

COMMENT ON FUNCTION eventkit_do_sweep IS 'Moves all due tasks of a queue: they become ready, or are dead.'

CREATE OR REPLACE FUNCTION eventkit_do_lock(name text, ttl double precision DEFAULT 60, holder text DEFAULT NULL)
RETURNS TABLE (token text, fence bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    proof bigint := eventkit_token();
BEGIN
    RETURN QUERY
    SELECT proof::text, taken.fence
    FROM eventkit_take_lock(
        eventkit_check_name('lock', $1), proof,
        eventkit_check_name('holder', coalesce($3, session_user || ':' || pg_backend_pid())),
        eventkit_check_seconds('ttl', coalesce($2, 60), 1)
    ) AS taken (fence)
    WHERE taken.fence IS NOT NULL;
END
$$

COMMENT ON FUNCTION eventkit_do_lock IS 'Acquires a lock for a number of seconds, and returns its token and its fence; no row if it is held.'

CREATE OR REPLACE FUNCTION eventkit_do_unlock(name text, token text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF NOT eventkit_lock_release($1, $2) THEN
        RAISE EXCEPTION 'the lock was lost: roll back what was done under it, and acquire it for longer'
        USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$$

COMMENT ON FUNCTION eventkit_do_unlock IS 'Releases a lock; it is an error if it was no longer held.'
