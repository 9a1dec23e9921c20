-- Ending a claim.
--
-- From old statistics the planner may assume an almost empty table, and scan a whole index, dead entries included, for
-- each id.  `IS TRUE` after the comparison of wake_at rules out the index of leased tasks; an array of ids, or a
-- subquery for each, rules out a join over the whole primary key.

-- The fields of a claimed task.
CREATE OR REPLACE FUNCTION eventkit_held(task json, OUT id bigint, OUT token bigint, OUT queue text)
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF json_typeof($1) = 'object' THEN
        id := ($1 ->> 'id')::bigint;
        token := ($1 ->> 'token')::bigint;
        queue := $1 ->> 'queue';
    END IF;
    IF id IS NULL OR token IS NULL OR queue IS NULL THEN
        RAISE EXCEPTION 'a task is an object with id, queue and token: pass on what the claim gave'
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$

-- Copy tasks that have just died to the dead_letter_to of their queue, and wake the waiters for their results.
CREATE OR REPLACE FUNCTION eventkit_settle_dead(ids bigint[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    woken boolean;
BEGIN
    WITH
    dead AS MATERIALIZED (
        SELECT t.id, t.queue, t.payload, t.headers, t.priority, q.dead_letter_to
        FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
        WHERE t.id = ANY ($1) AND t.state = 'dead'
    ),
    copies AS (
        INSERT INTO eventkit_task (queue, payload, headers, priority)
        SELECT dead_letter_to, payload, headers, priority
        FROM dead
        WHERE dead_letter_to IS NOT NULL
        RETURNING queue, priority
    ),
    opened AS (
        INSERT INTO eventkit_low_water (queue, priority)
        SELECT DISTINCT queue, priority
        FROM copies AS c
        WHERE NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = c.queue AND l.priority = c.priority)
    )
    SELECT bool_and(changed) INTO woken
    FROM (
        SELECT eventkit_wake('task', queue)
        FROM (SELECT queue FROM dead UNION SELECT queue FROM copies) AS queues
        UNION ALL
        SELECT eventkit_wake('result', id::text)
        FROM dead
    ) AS all_of_them (changed);
    RETURN true;
END
$$

-- Mark a held task dead; return whether the lease was still held.  The claim itself detects poison, so it still
-- holds the lease, however short.
CREATE OR REPLACE FUNCTION eventkit_mark_dead(id bigint, token bigint, reason text, error text, code text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    woken boolean;
BEGIN
    UPDATE eventkit_task
    SET
        state = 'dead', reason = $3, error = $4, code = coalesce($5, upper($3)), finished_at = now, wake_at = NULL,
        token = NULL, lapsed = false
    WHERE id = $1 AND token = $2 AND state = 'leased' AND (wake_at > now OR $3 = 'poison')
    RETURNING eventkit_wake('task', queue)
    INTO woken;
    RETURN FOUND AND eventkit_settle_dead(ARRAY[$1]);
END
$$

-- Delete a few expired reservations of keys, so that the table stays small; return a row for each.
CREATE OR REPLACE FUNCTION eventkit_forget_keys("limit" bigint) RETURNS SETOF integer
LANGUAGE sql VOLATILE
AS $$
    DELETE FROM eventkit_key
    WHERE (queue, key) IN (
        SELECT queue, key FROM eventkit_key
        WHERE reserved_until <= date_trunc('milliseconds', statement_timestamp())
        ORDER BY reserved_until
        LIMIT $1
        FOR UPDATE SKIP LOCKED
    )
    RETURNING 1
$$

-- Reserve the keys of tasks beyond their rows, for the rest of the queue's key_ttl.
CREATE OR REPLACE FUNCTION eventkit_reserve_keys(ids bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    UPDATE eventkit_key AS k
    SET
        reserved_until = t.enqueued_at + coalesce(q.key_ttl, 86400000) * interval '1 ms',
        payload = CASE WHEN q.strict_keys THEN t.payload END
    FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
    WHERE t.id = ANY ($1) AND k.queue = t.queue AND k.key = t.key AND k.task_id = t.id;
    PERFORM eventkit_forget_keys(2 * cardinality($1));
END
$$

-- Delete tasks.  Their keys stay reserved.
CREATE OR REPLACE FUNCTION eventkit_remove(ids bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    woken boolean;
BEGIN
    PERFORM eventkit_reserve_keys($1);
    WITH gone AS (DELETE FROM eventkit_task WHERE id = ANY ($1) RETURNING queue)
    SELECT bool_and(eventkit_wake('task', queue)) INTO woken FROM gone;
END
$$

-- Finish tasks, each with its result; return the ids of those whose lease was still held.  They are marked done, and
-- deleted where the queue does not keep done tasks.  Where it does, a few that were kept for long enough are deleted, one
-- more than are finished, so that a backlog shrinks.
CREATE OR REPLACE FUNCTION eventkit_finish(ids bigint[], tokens bigint[], results text[]) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    done bigint[];
    loose bigint[];
BEGIN
    WITH
    held AS MATERIALIZED (
        SELECT t.id, h.result::json
        FROM
            (SELECT * FROM unnest($1, $2, $3) AS h (id, token, result) ORDER BY id) AS h
            CROSS JOIN LATERAL (
                SELECT id FROM eventkit_task
                WHERE id = h.id AND token = h.token AND state = 'leased' AND (wake_at > now) IS TRUE
                FOR UPDATE
            ) AS t
    ),
    finished AS (
        UPDATE eventkit_task AS t
        SET state = 'done', result = held.result, finished_at = now, wake_at = NULL, token = NULL
        FROM held
        WHERE t.id = held.id AND t.id = ANY (ARRAY(SELECT id FROM held))
        RETURNING t.id, (SELECT q.keep_done FROM eventkit_queue AS q WHERE q.name = t.queue) AS keep, eventkit_wake('task', t.queue)
    )
    SELECT array_agg(id), array_agg(id) FILTER (WHERE keep IS NULL)
    INTO done, loose
    FROM finished;
    IF done IS NULL THEN
        RETURN;
    END IF;
    PERFORM eventkit_reserve_keys(done);
    IF loose IS NOT NULL THEN
        DELETE FROM eventkit_task WHERE id = ANY (loose);
    END IF;
    IF cardinality(done) > coalesce(cardinality(loose), 0) THEN
        DELETE FROM eventkit_task
        WHERE id = ANY (ARRAY(
            SELECT t.id
            FROM
                eventkit_queue AS q CROSS JOIN LATERAL (
                    SELECT d.id FROM eventkit_task AS d
                    WHERE
                        d.queue = q.name AND d.state = 'done' AND d.finished_at IS NOT NULL
                        AND d.finished_at <= now - q.keep_done * interval '1 ms'
                    LIMIT 1 + cardinality(done)
                    FOR UPDATE SKIP LOCKED
                ) AS t
            WHERE q.name IN (SELECT queue FROM eventkit_task WHERE id = ANY (done))
            LIMIT 1 + cardinality(done)
        ));
    END IF;
    RETURN QUERY SELECT unnest(done);
END
$$

CREATE OR REPLACE FUNCTION eventkit_ack(task json, result json DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    held record := eventkit_held($1);
    checked json := eventkit_check_payload($2, true);
BEGIN
    PERFORM eventkit_finish(ARRAY[held.id], ARRAY[held.token], ARRAY[checked::text]);
    IF NOT FOUND THEN
        RETURN false;
    ELSIF checked IS NOT NULL THEN
        PERFORM eventkit_save_task_result(held.id::text, checked, held.queue);
    END IF;
    RETURN true;
END
$$

COMMENT ON FUNCTION eventkit_ack IS
    'Finishes a claimed task, and saves its result if one is given; returns false if it is no longer the caller''s.'

-- Milliseconds to wait after an attempt, by the retry policy stored with the queue; without one, exponential.
CREATE OR REPLACE FUNCTION eventkit_retry_delay(attempt integer, policy json) RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT round(1000 * least(cap, plain * (1 + jitter * (2 * random()::numeric - 1))))::bigint
    FROM (
        SELECT
            coalesce(($2 ->> 'cap')::numeric, 300) AS cap,
            coalesce(($2 ->> 'jitter')::numeric, 0.3) AS jitter,
            CASE coalesce($2 ->> 'type', 'exponential')
                WHEN 'exponential' THEN coalesce(($2 ->> 'base')::numeric, 1) * power(2::numeric, least($1 - 1, 1000))
                WHEN 'linear' THEN ($2 ->> 'base')::numeric * $1
                WHEN 'fixed' THEN ($2 ->> 'base')::numeric
                WHEN 'delays' THEN ($2 -> 'seconds' ->> (least($1, json_array_length($2 -> 'seconds')) - 1))::numeric
            END AS plain
    ) AS said
$$

CREATE OR REPLACE FUNCTION eventkit_retry_held(id bigint, token bigint, delay bigint, error text, code text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    attempts integer;
    most bigint;
    policy text;
    pause bigint;
    woken boolean;
BEGIN
    SELECT t.attempt, coalesce(t.max_attempts, q.max_attempts, 3), q.retry
    INTO attempts, most, policy
    FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
    WHERE t.id = $1 AND t.token = $2 AND t.state = 'leased' AND (t.wake_at > now) IS TRUE
    FOR UPDATE OF t;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF attempts >= most THEN
        RETURN eventkit_mark_dead($1, $2, 'exhausted', $4, $5);
    END IF;
    pause := coalesce($3, eventkit_retry_delay(attempts, policy::json));
    UPDATE eventkit_task
    SET
        state = CASE WHEN pause > 0 THEN 'scheduled' ELSE 'ready' END,
        run_at = now + pause * interval '1 ms',
        wake_at = eventkit_wakes_at(now + pause * interval '1 ms', expires_at, now),
        error = $4, code = $5, token = NULL, lapsed = false
    WHERE id = $1 AND token = $2
    RETURNING eventkit_wake('task', queue)
    INTO woken;
    RETURN true;
END
$$

CREATE OR REPLACE FUNCTION eventkit_retry(
    task json, delay double precision DEFAULT NULL, error text DEFAULT NULL, code text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    held record := eventkit_held($1);
BEGIN
    RETURN eventkit_retry_held(held.id, held.token, eventkit_check_seconds('delay', $2, 0), $3, $4);
END
$$

COMMENT ON FUNCTION eventkit_retry IS
    'Puts a claimed task back for another attempt after a number of seconds, or by the policy of its queue; after the last attempt it is dead. Returns false if it is no longer the caller''s.'

CREATE OR REPLACE FUNCTION eventkit_fail(task json, error text, code text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    held record := eventkit_held($1);
BEGIN
    IF $2 IS NULL THEN
        RAISE EXCEPTION 'error is a text, not NULL' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN eventkit_mark_dead(held.id, held.token, 'failed', $2, $3);
END
$$

COMMENT ON FUNCTION eventkit_fail IS
    'Marks a claimed task dead; returns false if it is no longer the caller''s.'

-- A shortened lease ends before the time that waiters know.
CREATE OR REPLACE FUNCTION eventkit_extend_held(id bigint, token bigint, lease bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    woken boolean;
BEGIN
    WITH held AS MATERIALIZED (
        SELECT id, wake_at FROM eventkit_task
        WHERE id = $1 AND token = $2 AND state = 'leased' AND (wake_at > now) IS TRUE
        FOR UPDATE
    )
    UPDATE eventkit_task AS t
    SET wake_at = now + $3 * interval '1 ms'
    FROM held
    WHERE t.id = held.id AND t.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING CASE WHEN t.wake_at < held.wake_at THEN eventkit_wake('task', queue) END
    INTO woken;
    RETURN FOUND;
END
$$

CREATE OR REPLACE FUNCTION eventkit_extend(task json, seconds double precision) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    held record := eventkit_held($1);
BEGIN
    RETURN eventkit_extend_held(
        held.id, held.token, eventkit_check_given('seconds', eventkit_check_seconds('seconds', $2, 0))
    );
END
$$

COMMENT ON FUNCTION eventkit_extend IS
    'Lets the lease of a claimed task end a number of seconds from now; returns false if it is no longer the caller''s.'
