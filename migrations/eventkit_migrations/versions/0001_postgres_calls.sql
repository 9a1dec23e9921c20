-- The functions that operations and plain SQL call.  (`eventkit_publish`, `eventkit_enqueue` and `eventkit_notify` are
-- in 0001_postgres.sql.)
--
-- From old statistics the planner may assume an almost empty table, and scan a whole index, dead entries included, for
-- each id.  `IS TRUE` after the comparison of wake_at rules out the index of leased tasks; an array of ids, or a
-- subquery for each, rules out a join over the whole primary key.

-- A number that cannot be guessed.
CREATE FUNCTION eventkit_token() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint & 9223372036854775807
$$

CREATE FUNCTION eventkit_read(topic text, after bigint DEFAULT 0, "limit" bigint DEFAULT 1000) RETURNS json
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    name text := eventkit_check_name('topic', $1);
    start bigint := eventkit_check_count('after', coalesce($2, 0), 0);
    most bigint := eventkit_check_count('limit', coalesce($3, 1000), 1);
    first bigint;
    events json;
    pruned bigint;
BEGIN
    SELECT
        min(e.id),
        coalesce(json_agg(json_build_object(
            'offset', e.id, 'topic', name, 'key', e.key, 'payload', e.payload::json,
            'headers', coalesce(e.headers::json, '{}'), 'created_ms', e.created_ms
        ) ORDER BY e.id), '[]')
    INTO first, events
    FROM eventkit_events_after(name, start, most) AS e;
    IF start > 0 AND first IS DISTINCT FROM start + 1 THEN
        SELECT t.pruned_to INTO pruned FROM eventkit_topic AS t WHERE t.name = $1;
        IF pruned > start THEN
            RAISE EXCEPTION
                'the events % to % of topic % were pruned before they were read: read on after %',
                start + 1, pruned, quote_literal($1), pruned
            USING ERRCODE = 'no_data_found';
        END IF;
    END IF;
    RETURN events;
END
$$

COMMENT ON FUNCTION eventkit_read IS
    'Returns the events of a topic after an offset, in order: an array of objects.'

CREATE FUNCTION eventkit_move_offset(topic text, consumer text, "offset" bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO eventkit_consumer AS c (topic, name, position)
    VALUES ($1, $2, $3)
    ON CONFLICT (topic, name) DO UPDATE
    SET position = excluded.position, updated_at = date_trunc('milliseconds', clock_timestamp())
    WHERE excluded.position > c.position;
    RETURN FOUND;
END
$$

CREATE FUNCTION eventkit_save_offset(topic text, consumer text, "offset" bigint) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_move_offset(
        eventkit_check_name('topic', $1), eventkit_check_name('consumer', $2), eventkit_check_count('offset', $3, 0)
    )
$$

COMMENT ON FUNCTION eventkit_save_offset IS
    'Moves a consumer forward; returns false if it is there or beyond already.'

-- Claiming.

-- Move due tasks: scheduled and lapsed tasks become ready, exhausted and expired ones die.  Return their number.  A
-- task that has been due for a while may lie before the place where claims begin to scan (eventkit_low).
CREATE FUNCTION eventkit_promote(queue text, "limit" bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    number bigint;
    died bigint[];
    lanes text[];
BEGIN
    WITH
    stirred AS MATERIALIZED (SELECT eventkit_stir('task', $1)),
    due AS MATERIALIZED (
        SELECT
            t.id, t.expires_at <= now AS expired,
            t.expires_at <= now
            OR t.state = 'leased' AND t.attempt >= coalesce(
                t.max_attempts, (SELECT q.max_attempts FROM eventkit_queue AS q WHERE q.name = $1), 3
            ) AS dies
        FROM stirred, eventkit_task AS t
        WHERE
            t.queue = $1 AND t.state IN ('scheduled', 'leased', 'ready') AND t.wake_at <= now
            AND t.wake_at >= (
                SELECT coalesce(min(l.wake_at), '-infinity') FROM eventkit_low AS l
                WHERE l.queue = $1 AND l.raise_at > now - interval '1 s' AND l.wake_at <= now
            )
        ORDER BY t.priority DESC, t.run_at, t.id
        LIMIT $2
        FOR UPDATE OF t SKIP LOCKED
    ),
    moved AS (
        UPDATE eventkit_task AS t
        SET
            state = CASE WHEN dies THEN 'dead' ELSE 'ready' END,
            reason = CASE WHEN dies THEN CASE WHEN expired THEN 'expired' ELSE 'exhausted' END END,
            error = CASE
                WHEN t.state = 'leased'
                THEN 'the lease of worker ' || t.worker || ' ran out in attempt ' || t.attempt
                ELSE t.error
            END,
            finished_at = CASE WHEN dies THEN now END,
            wake_at = CASE WHEN dies IS NOT TRUE THEN t.expires_at END,
            token = NULL,
            lapsed = t.lapsed OR t.state = 'leased'
        FROM due
        WHERE t.id = due.id AND t.id = ANY (ARRAY(SELECT id FROM due))
        RETURNING t.id, t.queue, t.lane, t.state, t.priority, t.run_at
    ),
    lowered AS (
        INSERT INTO eventkit_low (queue, priority, run_at)
        SELECT m.queue, m.priority, min(m.run_at)
        FROM moved AS m
        WHERE
            m.state = 'ready' AND (
                m.run_at < now - interval '25 ms'
                OR NOT EXISTS (SELECT FROM eventkit_low AS l WHERE l.queue = m.queue AND l.priority = m.priority)
            )
        GROUP BY m.queue, m.priority
    )
    SELECT count(*), array_agg(id) FILTER (WHERE state = 'dead'), array_agg(lane) FILTER (WHERE state = 'dead')
    INTO number, died, lanes
    FROM moved;
    IF died IS NOT NULL THEN
        PERFORM eventkit_mourn($1, died, lanes);
    END IF;
    RETURN number;
END
$$

-- Store the remaining tokens of the queue's bucket, if it has one.
CREATE FUNCTION eventkit_spend_tokens(queue text, tokens double precision, refilled_at bigint) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    UPDATE eventkit_queue SET tokens = $2, refilled_at = eventkit_moment($3) WHERE name = $1
$$

-- Lease the first ready tasks to a worker; `proof` is the token of the leases.
CREATE FUNCTION eventkit_claimed(queue text, worker text, "limit" bigint, lease bigint, proof bigint)
RETURNS TABLE (
    id bigint, queue_name text, payload text, key text, headers text, priority integer, attempt integer,
    max_attempts bigint, run_ms bigint, enqueued_ms bigint, expires_ms bigint, lease_expires_ms bigint, token bigint,
    lease_ms bigint, lapsed boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    queue text := $1;
    worker text := $2;
    "limit" bigint := $3;
    lease bigint := $4;
    token bigint := $5;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    gate record;
    depth double precision;
    tokens double precision;
    passed boolean := false;
    number bigint;
BEGIN
    LOOP
        -- At first for the common case: no limits, and no task to promote first.  The gate is read from time to time all
        -- the same, because it moves the beginning of the priorities; but not first by a worker that was asleep until now
        -- and should start at once, because its next claim, which finds nothing, does it.  Ready tasks that will expire
        -- are found by the time: ``(SELECT 'ready')`` keeps the planner from the index of ready tasks, which it would scan
        -- completely, and which it takes for short after a quiet minute.  Expired tasks are excluded, because a promotion
        -- marks only a limited number of them dead at once.
        RETURN QUERY
        WITH
        mark AS MATERIALIZED (
            SELECT min(wake_at) AS wake_at
            FROM eventkit_low
            WHERE queue = call.queue AND raise_at > call.now - interval '1 s' AND wake_at <= call.now
        ),
        settings AS MATERIALIZED (
            SELECT coalesce(call.lease::bigint, lease, 300000) AS lease, coalesce(max_attempts, 3) AS max_attempts
            FROM (SELECT) AS one LEFT JOIN eventkit_queue ON name = call.queue
            WHERE
                passed
                OR paused IS NOT TRUE AND rate IS NULL AND max_running IS NULL
                AND EXISTS (
                    SELECT FROM eventkit_low
                    WHERE queue = call.queue AND wake_at <= call.now AND (
                        raise_at > call.now
                        OR raise_at > call.now - interval '1 s'
                        AND EXISTS (SELECT FROM eventkit_sleeper WHERE name = 'task:' || call.queue AND until > call.now)
                    )
                )
                AND NOT EXISTS (
                    SELECT FROM eventkit_task
                    WHERE queue = call.queue AND state = 'scheduled' AND wake_at <= call.now AND wake_at >= (SELECT wake_at FROM mark)
                )
                AND NOT EXISTS (
                    SELECT FROM eventkit_task
                    WHERE queue = call.queue AND state = 'leased' AND wake_at <= call.now AND wake_at >= (SELECT wake_at FROM mark)
                )
                AND NOT EXISTS (
                    SELECT FROM eventkit_task
                    WHERE
                        queue = call.queue AND state = (SELECT 'ready'::text)
                        AND wake_at <= call.now AND wake_at >= (SELECT wake_at FROM mark)
                )
        ),
        best AS MATERIALIZED (
            SELECT t.id
            FROM
                settings
                CROSS JOIN (
                    SELECT priority, min(run_at) AS run_at FROM eventkit_low
                    WHERE queue = call.queue
                    GROUP BY priority
                    ORDER BY priority DESC
                ) AS low
                CROSS JOIN LATERAL (
                    SELECT id FROM eventkit_task
                    WHERE
                        queue = call.queue AND state = 'ready' AND priority = low.priority AND run_at >= low.run_at
                        AND (expires_at IS NULL OR expires_at > call.now)
                    ORDER BY run_at, id
                    LIMIT call.limit
                    FOR UPDATE SKIP LOCKED
                ) AS t
            LIMIT call.limit
        )
        UPDATE eventkit_task AS t
        SET
            state = 'leased', attempt = attempt + 1, worker = call.worker, token = call.token,
            claimed_at = call.now, wake_at = call.now + settings.lease * interval '1 ms'
        FROM settings
        WHERE t.id = ANY (ARRAY(SELECT id FROM best))
        RETURNING
            t.id, queue, payload::text, coalesce(key, lane), headers::text, priority, attempt, coalesce(t.max_attempts, settings.max_attempts),
            eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(wake_at), token, settings.lease, lapsed
        ;
        GET DIAGNOSTICS number = ROW_COUNT;
        EXIT WHEN number > 0 OR passed;
        SELECT * INTO gate FROM eventkit_gate(call.queue);
        IF gate.due THEN
            number := eventkit_promote(call.queue, greatest(1000, call.limit));
        END IF;
        IF gate.rate IS NOT NULL THEN
            depth := coalesce(gate.burst, greatest(1, gate.rate));
            tokens := least(
                depth, coalesce(gate.tokens + greatest(0, gate.now - gate.refilled_at) * gate.rate / 1000, depth)
            );
        END IF;
        IF gate.refilled_at > gate.now THEN  -- Set by a clock that was ahead.
            PERFORM eventkit_spend_tokens(call.queue, call.tokens, gate.now);
        END IF;
        call.limit := CASE WHEN gate.paused THEN 0 ELSE least(
            call.limit, gate.max_running - gate.running, floor(call.tokens + 1e-6)::bigint
        ) END;
        IF call.limit <= 0 THEN
            RETURN;
        END IF;
        passed := true;
        call.now := date_trunc('milliseconds', clock_timestamp());
    END LOOP;
    IF number > 0 AND passed THEN
        IF gate.rate IS NOT NULL OR gate.max_running IS NOT NULL THEN
            PERFORM eventkit_spend_tokens(call.queue, call.tokens - number, gate.now);
        END IF;
    END IF;
END
$$

CREATE FUNCTION eventkit_claim(
    queue text, worker text, "limit" bigint DEFAULT 1, lease double precision DEFAULT NULL
) RETURNS json
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(json_agg(json_build_object(
            'id', c.id, 'queue', c.queue_name, 'payload', c.payload::json, 'key', c.key,
            'headers', coalesce(c.headers::json, '{}'), 'priority', c.priority, 'attempt', c.attempt,
            'max_attempts', c.max_attempts, 'run_ms', c.run_ms, 'enqueued_ms', c.enqueued_ms,
            'expires_ms', c.expires_ms, 'lease_expires_ms', c.lease_expires_ms, 'token', c.token::text,
            'lease_ms', c.lease_ms, 'lapsed', c.lapsed
        ) ORDER BY c.priority DESC, c.run_ms, c.id), '[]')
        FROM eventkit_claimed(
            eventkit_check_name('queue', $1), eventkit_check_name('worker', $2),
            eventkit_check_count('limit', coalesce($3, 1), 1), eventkit_check_seconds('lease', $4, 0),
            eventkit_token()
        ) AS c
    );
END
$$

COMMENT ON FUNCTION eventkit_claim IS
    'Leases the best tasks of a queue to a worker for a number of seconds, and returns an array of objects, which eventkit_ack and the others take as their task.'

-- Ending a claim.

-- The fields of a claimed task.
CREATE FUNCTION eventkit_held(task json, OUT id bigint, OUT token bigint, OUT queue text)
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

-- Copy the queue's tasks that have just died to its dead letter queue, wake the waiters for their results, and release
-- the next tasks of their lanes.
CREATE FUNCTION eventkit_mourn(queue text, ids bigint[], lanes text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    stirred boolean;
BEGIN
    WITH
    dead AS MATERIALIZED (
        SELECT t.id, t.queue, t.payload, t.headers, t.priority, q.dead_letter_to
        FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
        WHERE t.id = ANY ($2) AND t.state = 'dead'
    ),
    copies AS (
        INSERT INTO eventkit_task (queue, payload, headers, priority)
        SELECT dead_letter_to, payload, headers, priority
        FROM dead
        WHERE dead_letter_to IS NOT NULL
        RETURNING queue, priority
    ),
    opened AS (
        INSERT INTO eventkit_low (queue, priority)
        SELECT DISTINCT queue, priority
        FROM copies AS c
        WHERE NOT EXISTS (SELECT FROM eventkit_low AS l WHERE l.queue = c.queue AND l.priority = c.priority)
    )
    SELECT bool_and(changed) INTO stirred
    FROM (
        SELECT eventkit_stir('task', queue)
        FROM (SELECT queue FROM dead UNION SELECT queue FROM copies) AS queues
        UNION ALL
        SELECT eventkit_stir('result', id::text)
        FROM dead
    ) AS all_of_them (changed);
    IF array_remove($3, NULL) <> '{}' THEN
        stirred := eventkit_unblock($1, ARRAY(SELECT DISTINCT l FROM unnest($3) AS l WHERE l IS NOT NULL ORDER BY l LIMIT 1000));
    END IF;
    RETURN true;
END
$$

-- Make a held task a dead letter; return whether the lease was still held.  The claim itself detects poison, so it still
-- holds the lease, however short.
CREATE FUNCTION eventkit_bury(id bigint, token bigint, reason text, error text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    died record;
BEGIN
    UPDATE eventkit_task
    SET
        state = 'dead', reason = $3, error = $4, finished_at = now, wake_at = NULL, token = NULL, lapsed = false
    WHERE id = $1 AND token = $2 AND state = 'leased' AND (wake_at > now OR $3 = 'poison')
    RETURNING queue, lane, eventkit_stir('task', queue)
    INTO died;
    RETURN FOUND AND eventkit_mourn(died.queue, ARRAY[$1], ARRAY[died.lane]);
END
$$

-- Delete a few expired reservations of keys, so that the table stays small; return a row for each.
CREATE FUNCTION eventkit_forget_keys("limit" bigint) RETURNS SETOF integer
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
CREATE FUNCTION eventkit_reserve_keys(ids bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    UPDATE eventkit_key AS k
    SET reserved_until = t.enqueued_at + coalesce(q.key_ttl, 86400000) * interval '1 ms'
    FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
    WHERE t.id = ANY ($1) AND k.queue = t.queue AND k.key = t.key AND k.task_id = t.id;
    PERFORM eventkit_forget_keys(2 * cardinality($1));
END
$$

-- Delete tasks.  Their keys stay reserved.
CREATE FUNCTION eventkit_remove(ids bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    stirred boolean;
BEGIN
    PERFORM eventkit_reserve_keys($1);
    WITH gone AS (DELETE FROM eventkit_task WHERE id = ANY ($1) RETURNING queue)
    SELECT bool_and(eventkit_stir('task', queue)) INTO stirred FROM gone;
END
$$

-- Finish tasks, each with its result; return the ids of those whose lease was still held.  They are marked done, and
-- deleted where the queue does not keep done tasks.  Where it does, a few that were kept for long enough are deleted, one
-- more than are finished, so that a backlog shrinks.
CREATE FUNCTION eventkit_finish(ids bigint[], tokens bigint[], results text[]) RETURNS SETOF bigint
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
        RETURNING t.id, (SELECT q.keep_done FROM eventkit_queue AS q WHERE q.name = t.queue) AS keep, eventkit_stir('task', t.queue)
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

CREATE FUNCTION eventkit_ack(task json, result json DEFAULT NULL) RETURNS boolean
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
CREATE FUNCTION eventkit_retry_delay(attempt integer, policy json) RETURNS bigint
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

CREATE FUNCTION eventkit_retry_held(id bigint, token bigint, delay bigint, error text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    attempts integer;
    most bigint;
    policy text;
    pause bigint;
    stirred boolean;
BEGIN
    SELECT t.attempt, coalesce(t.max_attempts, q.max_attempts, 3), q.retry
    INTO attempts, most, policy
    FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
    WHERE t.id = $1 AND t.token = $2 AND t.state = 'leased' AND (t.wake_at > now) IS TRUE
    FOR UPDATE OF t;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF attempts >= most THEN
        RETURN eventkit_bury($1, $2, 'exhausted', $4);
    END IF;
    pause := coalesce($3, eventkit_retry_delay(attempts, policy::json));
    UPDATE eventkit_task
    SET
        state = CASE WHEN pause > 0 THEN 'scheduled' ELSE 'ready' END,
        run_at = now + pause * interval '1 ms',
        wake_at = eventkit_wakes_at(now + pause * interval '1 ms', expires_at, now),
        error = $4, token = NULL, lapsed = false
    WHERE id = $1 AND token = $2
    RETURNING eventkit_stir('task', queue)
    INTO stirred;
    RETURN true;
END
$$

CREATE FUNCTION eventkit_retry(task json, delay double precision DEFAULT NULL, error text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    held record := eventkit_held($1);
BEGIN
    RETURN eventkit_retry_held(held.id, held.token, eventkit_check_seconds('delay', $2, 0), $3);
END
$$

COMMENT ON FUNCTION eventkit_retry IS
    'Puts a claimed task back for another attempt after a number of seconds, or by the policy of its queue; after the last attempt it is dead. Returns false if it is no longer the caller''s.'

CREATE FUNCTION eventkit_fail(task json, error text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    held record := eventkit_held($1);
BEGIN
    IF $2 IS NULL THEN
        RAISE EXCEPTION 'error is a text, not NULL' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN eventkit_bury(held.id, held.token, 'failed', $2);
END
$$

COMMENT ON FUNCTION eventkit_fail IS
    'Makes a claimed task a dead letter; returns false if it is no longer the caller''s.'

-- A shortened lease ends before the time that waiters know.
CREATE FUNCTION eventkit_extend_held(id bigint, token bigint, lease bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    stirred boolean;
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
    RETURNING CASE WHEN t.wake_at < held.wake_at THEN eventkit_stir('task', queue) END
    INTO stirred;
    RETURN FOUND;
END
$$

CREATE FUNCTION eventkit_extend(task json, seconds double precision) RETURNS boolean
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

CREATE FUNCTION eventkit_cancel(queue text, id bigint, running boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    name text := eventkit_check_name('queue', $1);
    number bigint := eventkit_check_count('id', $2, 0);
    task record;
BEGIN
    SELECT lane, state = 'leased' AS leased
    INTO task
    FROM eventkit_task_now AS n
    WHERE
        queue = name AND id = number
        AND (state IN ('scheduled', 'ready') OR state = 'leased' AND coalesce($3, false))
        AND EXISTS (SELECT FROM eventkit_task AS t WHERE t.id = n.id AND t.state = n.stored_state FOR UPDATE);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE eventkit_task SET token = NULL WHERE id = $2;
    PERFORM eventkit_remove(ARRAY[$2]);
    IF task.lane IS NOT NULL THEN
        PERFORM eventkit_unblock($1, ARRAY[task.lane]);
    END IF;
    IF task.leased THEN
        PERFORM eventkit_tell('eventkit:cancelled', json_build_object('queue', $1, 'id', $2), NULL);
    END IF;
    RETURN true;
END
$$

COMMENT ON FUNCTION eventkit_cancel IS
    'Cancels a waiting task, or also a running one, whose worker is notified; returns false if there is none.'

-- The numbers of a queue, each counted up to the limit.  Due tasks that were not moved yet are counted apart.  The ready
-- index gives the oldest task of each priority; the recursion skips from one priority to the next.
CREATE FUNCTION eventkit_counts(queue text, "limit" bigint) RETURNS TABLE (
    scheduled bigint, ready bigint, leased bigint, dead bigint, done bigint,
    due bigint, due_ready bigint, was_ready bigint, due_dead bigint, age bigint, paused boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
BEGIN
    RETURN QUERY
    WITH RECURSIVE
    due (stored_state, state, run_at) AS (
        SELECT stored_state, state, run_at
        FROM eventkit_task_now
        WHERE queue = $1 AND stored_state IN ('scheduled', 'leased', 'ready') AND wake_at <= now
        LIMIT $2
    ),
    priorities (priority) AS (
        SELECT max(priority) FROM eventkit_task WHERE queue = $1 AND state = 'ready'
        UNION ALL
        SELECT (SELECT max(t.priority) FROM eventkit_task AS t WHERE t.queue = $1 AND t.state = 'ready' AND t.priority < p.priority)
        FROM priorities AS p
        WHERE p.priority IS NOT NULL
    )
    SELECT
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = $1 AND state = 'scheduled' AND wake_at > now LIMIT $2) AS few),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = $1 AND state = 'ready' LIMIT $2) AS few),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = $1 AND state = 'leased' AND wake_at > now LIMIT $2) AS few),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = $1 AND state = 'dead' AND finished_at IS NOT NULL LIMIT $2) AS few),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = $1 AND state = 'done' AND finished_at IS NOT NULL LIMIT $2) AS few),
        (SELECT count(*) FROM due),
        (SELECT count(*) FROM due WHERE state = 'ready'),
        (SELECT count(*) FROM due WHERE stored_state = 'ready'),
        (SELECT count(*) FROM due WHERE state = 'dead'),
        eventkit_ms(now) - (
            SELECT eventkit_ms(min(run_at)) FROM (
                SELECT (
                    SELECT min(t.run_at) FROM eventkit_task AS t
                    WHERE
                        t.queue = $1 AND t.state = 'ready' AND t.priority = p.priority
                        AND (t.expires_at IS NULL OR t.expires_at > now)
                ) AS run_at
                FROM priorities AS p
                UNION ALL
                SELECT run_at FROM due WHERE state = 'ready'
            ) AS oldest
        ),
        coalesce((SELECT paused FROM eventkit_queue WHERE name = $1), false);
END
$$

CREATE FUNCTION eventkit_stats(queue text) RETURNS json
LANGUAGE sql VOLATILE
AS $$
    SELECT json_build_object(
        'scheduled', least(c.scheduled, most), 'ready', least(n.ready, most), 'leased', least(c.leased, most),
        'dead', least(n.dead, most), 'done', least(c.done, most),
        'oldest_ready_age', CASE WHEN c.age IS NOT NULL THEN greatest(0, c.age) / 1000.0::double precision END,
        'paused', c.paused,
        'approximate', greatest(c.scheduled, c.ready, c.leased, c.dead, c.done, c.due, n.ready, n.dead) > most
    )
    FROM
        (SELECT 10000 AS most) AS bound  -- Counts stop one above it.
        CROSS JOIN LATERAL eventkit_counts(eventkit_check_name('queue', $1), most + 1) AS c
        CROSS JOIN LATERAL (
            SELECT greatest(0, c.ready + c.due_ready - c.was_ready) AS ready, c.dead + c.due_dead AS dead
        ) AS n
$$

COMMENT ON FUNCTION eventkit_stats IS
    'Returns the numbers of a queue as an object.'

-- Locks, limits and results.

-- Return the fence of a lock that was acquired, or NULL.  A refused attempt only reads: a conflicting insert would lock
-- the row, which is a write and a commit.  A lock taken by a clock that was ahead also refuses the attempt, which may
-- wait for the row and shortens it to its ttl from now.
CREATE FUNCTION eventkit_take_lock(name text, token bigint, holder text, ttl bigint) RETURNS bigint
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

CREATE FUNCTION eventkit_lock_acquire(name text, ttl double precision DEFAULT 60) RETURNS json
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

CREATE FUNCTION eventkit_free_lock(name text, token bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    stirred boolean;
BEGIN
    UPDATE eventkit_lock
    SET token = NULL, holder = NULL, expires_at = NULL
    WHERE name = $1 AND token = $2 AND expires_at > date_trunc('milliseconds', clock_timestamp())
    RETURNING eventkit_stir('lock', name)
    INTO stirred;
    RETURN FOUND;
END
$$

CREATE FUNCTION eventkit_lock_release(name text, token text) RETURNS boolean
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
CREATE FUNCTION eventkit_count_call(name text, per bigint, "limit" bigint) RETURNS boolean
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

CREATE FUNCTION eventkit_rate_limit(name text, "limit" bigint, per double precision) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_count_call(
        eventkit_check_name('limit', $1),
        eventkit_check_given('per', eventkit_check_seconds('per', $3, 1)),
        eventkit_check_count('limit', $2, 1)
    )
$$

COMMENT ON FUNCTION eventkit_rate_limit IS
    'Counts a call in the current window of a number of seconds; returns false if the limit is reached.'

-- Save a value for a number of milliseconds.  The id is JSON: a task's number, or a string in quotes.
CREATE FUNCTION eventkit_store_result(id text, value json, ttl bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    stirred boolean;
BEGIN
    INSERT INTO eventkit_result (id, value, expires_at)
    VALUES ($1, $2, date_trunc('milliseconds', clock_timestamp()) + $3 * interval '1 ms')
    ON CONFLICT (id) DO UPDATE
    SET value = excluded.value, expires_at = excluded.expires_at
    RETURNING eventkit_stir('result', id)
    INTO stirred;
    RETURN true;
END
$$

-- Save the result of a task for an hour, or for as long as the queue keeps done tasks if that is longer.
CREATE FUNCTION eventkit_save_task_result(id text, value json, queue text) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_store_result(
        $1, $2, greatest(3600000, (SELECT keep_done FROM eventkit_queue WHERE name = $3))
    )
$$

CREATE FUNCTION eventkit_save_result(id text, value json, ttl double precision) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_store_result(
        $1, eventkit_check_payload($2), eventkit_check_seconds('ttl', coalesce($3, 3600), 1)
    )
$$

CREATE FUNCTION eventkit_result_save(id text, value json, ttl double precision DEFAULT 3600) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_save_result(to_json(eventkit_check_name('result', $1))::text, $2, $3)
$$

CREATE FUNCTION eventkit_result_save(id bigint, value json, ttl double precision DEFAULT 3600) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_save_result(eventkit_check_count('id', $1, 0)::text, $2, $3)
$$

COMMENT ON FUNCTION eventkit_result_save(text, json, double precision) IS
    'Saves a value under a name for a number of seconds.'

COMMENT ON FUNCTION eventkit_result_save(bigint, json, double precision) IS
    'Saves a value under the id of a task for a number of seconds.'

CREATE FUNCTION eventkit_result_get(id text) RETURNS json
LANGUAGE sql VOLATILE
AS $$
    SELECT r.value FROM eventkit_result AS r
    WHERE r.id = to_json(eventkit_check_name('result', $1))::text AND r.expires_at > date_trunc('milliseconds', clock_timestamp())
$$

CREATE FUNCTION eventkit_result_get(id bigint) RETURNS json
LANGUAGE sql VOLATILE
AS $$
    SELECT r.value FROM eventkit_result AS r
    WHERE r.id = eventkit_check_count('id', $1, 0)::text AND r.expires_at > date_trunc('milliseconds', clock_timestamp())
$$

COMMENT ON FUNCTION eventkit_result_get(text) IS
    'Returns the value saved under a name; NULL if there is none.'

COMMENT ON FUNCTION eventkit_result_get(bigint) IS
    'Returns the value saved under the id of a task; NULL if there is none.'
