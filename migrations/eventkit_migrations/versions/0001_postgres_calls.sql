-- The functions that do in plain SQL what the library's calls do.  (`eventkit_publish`, `eventkit_enqueue` and
-- `eventkit_notify` are in 0001_postgres.sql.)
--
-- A statement beneath `-- Lease:` is that of the operation Lease, with a variable of the block `call` for each
-- parameter, which a test checks.  The logic of the plans between their statements is repeated here, and the
-- conformance suite runs handles and functions alike.

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

CREATE FUNCTION eventkit_save_offset(topic text, consumer text, "offset" bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    topic text := eventkit_check_name('topic', $1);
    consumer text := eventkit_check_name('consumer', $2);
    "offset" bigint := eventkit_check_count('offset', $3, 0);
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    moved bigint;
BEGIN
    -- SaveOffset:
    INSERT INTO eventkit_consumer AS c (topic, name, position)
    VALUES (call.topic, call.consumer, call.offset)
    ON CONFLICT (topic, name) DO UPDATE
    SET position = excluded.position, updated_at = call.now
    WHERE excluded.position > c.position
    RETURNING position
    INTO moved;
    RETURN FOUND;
END
$$

COMMENT ON FUNCTION eventkit_save_offset IS
    'Moves a consumer forward; returns false if it is there or beyond already.'

-- Claiming.

-- Promote due tasks.
CREATE FUNCTION eventkit_promote(queue text, "limit" bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    queue text := $1;
    "limit" bigint := $2;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    moved record;
    died bigint[] := '{}';
    lanes text[] := '{}';
BEGIN
    FOR moved IN
        -- Promote:
        WITH
        stirred AS MATERIALIZED (SELECT eventkit_stir('task', call.queue)),
        due AS MATERIALIZED (
            SELECT
                t.id, t.expires_at <= call.now AS expired,
                t.expires_at <= call.now
                OR t.state = 'leased' AND t.attempt >= coalesce(
                    t.max_attempts, (SELECT q.max_attempts FROM eventkit_queue AS q WHERE q.name = call.queue), 3
                ) AS dies
            FROM stirred, eventkit_task AS t
            WHERE
                t.queue = call.queue AND t.state IN ('scheduled', 'leased', 'ready') AND t.wake_at <= call.now
                AND t.wake_at >= (
                    SELECT coalesce(min(l.wake_at), '-infinity') FROM eventkit_low AS l
                    WHERE l.queue = call.queue AND l.raise_at > call.now - interval '1 s' AND l.wake_at <= call.now
                )
            ORDER BY t.priority DESC, t.run_at, t.id
            LIMIT call.limit
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
                finished_at = CASE WHEN dies THEN call.now END,
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
                    m.run_at < call.now - interval '25 ms'
                    OR NOT EXISTS (SELECT FROM eventkit_low AS l WHERE l.queue = m.queue AND l.priority = m.priority)
                )
            GROUP BY m.queue, m.priority
        )
        SELECT id, state, lane
        FROM moved
    LOOP
        IF moved.state = 'dead' THEN
            died := died || moved.id;
            lanes := lanes || moved.lane;
        END IF;
    END LOOP;
    IF died <> '{}' THEN
        PERFORM eventkit_mourn(call.queue, died, lanes);
    END IF;
END
$$

-- The claim's plan, as rows; `proof` is the token of the leases.
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
    refilled_at bigint;
    max_attempts bigint;
    number bigint;
BEGIN
    -- The common case: no limits, and no task to promote first.  The gate is read from time to time all the same,
    -- because it moves the beginning of the priorities; but not first by a worker that was asleep until now and should
    -- start at once, because its next claim, which finds nothing, does it.  Ready tasks that will expire are found by
    -- the time: ``(SELECT 'ready')`` keeps the planner from the index of ready tasks, which it would scan completely,
    -- and which it takes for short after a quiet minute.
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
            paused IS NOT TRUE AND rate IS NULL AND max_running IS NULL
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
    IF FOUND THEN
        RETURN;
    END IF;
    -- ReadGate:
    SELECT paused, lease, max_attempts, rate, burst, tokens, refilled_at, max_running, running, due, now
    FROM eventkit_gate(call.queue)
    INTO gate;
    IF gate.due THEN
        PERFORM eventkit_promote(call.queue, greatest(1000, call.limit));
    END IF;
    IF gate.rate IS NOT NULL THEN
        depth := coalesce(gate.burst, greatest(1, gate.rate));
        call.tokens := least(
            depth, coalesce(gate.tokens + greatest(0, gate.now - gate.refilled_at) * gate.rate / 1000, depth)
        );
    END IF;
    IF gate.refilled_at > gate.now THEN  -- Set by a clock that was ahead.
        call.refilled_at := gate.now;
        -- SpendTokens:
        UPDATE eventkit_queue
        SET tokens = call.tokens, refilled_at = eventkit_moment(call.refilled_at)
        WHERE name = call.queue;
    END IF;
    call.limit := CASE WHEN gate.paused THEN 0 ELSE least(
        call.limit, gate.max_running - gate.running, floor(call.tokens + 1e-6)::bigint
    ) END;
    IF call.limit <= 0 THEN
        RETURN;
    END IF;
    call.lease := coalesce(call.lease, gate.lease);
    call.max_attempts := gate.max_attempts;
    call.now := date_trunc('milliseconds', clock_timestamp());
    RETURN QUERY
    -- Lease:
    WITH best AS MATERIALIZED (
        SELECT t.id
        FROM
            (
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
        claimed_at = call.now, wake_at = call.now + call.lease::bigint * interval '1 ms'
    WHERE t.id = ANY (ARRAY(SELECT id FROM best))
    RETURNING
        t.id, queue, payload::text, coalesce(key, lane), headers::text, priority, attempt, coalesce(max_attempts, call.max_attempts::bigint),
        eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(wake_at), token, call.lease::bigint, lapsed
    ;
    GET DIAGNOSTICS number = ROW_COUNT;
    IF number > 0 AND (gate.rate IS NOT NULL OR gate.max_running IS NOT NULL) THEN
        call.tokens := call.tokens - number;
        call.refilled_at := gate.now;
        -- SpendTokens:
        UPDATE eventkit_queue
        SET tokens = call.tokens, refilled_at = eventkit_moment(call.refilled_at)
        WHERE name = call.queue;
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

-- Copy dead tasks to their queues' dead letter queue, and release the next tasks of their lanes.
CREATE FUNCTION eventkit_mourn(queue text, ids bigint[], lanes text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    ids bigint[] := $2;
    stirred boolean;
BEGIN
    FOR stirred IN
        -- CopyDead:
        WITH
        dead AS MATERIALIZED (
            SELECT t.id, t.queue, t.payload, t.headers, t.priority, q.dead_letter_to
            FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
            WHERE t.id = ANY (call.ids::bigint[]) AND t.state = 'dead'
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
        SELECT eventkit_stir('task', queue)
        FROM (SELECT queue FROM dead UNION SELECT queue FROM copies) AS changed
        UNION ALL
        SELECT eventkit_stir('result', id::text)
        FROM dead
    LOOP
        NULL;  -- Runs the query to its last row.
    END LOOP;
    IF array_remove($3, NULL) <> '{}' THEN
        PERFORM eventkit_unblock($1, ARRAY(SELECT DISTINCT l FROM unnest($3) AS l WHERE l IS NOT NULL ORDER BY l LIMIT 1000));
    END IF;
END
$$

CREATE FUNCTION eventkit_bury(id bigint, token bigint, reason text, error text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    id bigint := $1;
    token bigint := $2;
    reason text := $3;
    error text := $4;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    died record;
BEGIN
    -- Bury:
    UPDATE eventkit_task
    SET
        state = 'dead', reason = call.reason, error = call.error, finished_at = call.now, wake_at = NULL, token = NULL, lapsed = false
    WHERE id = call.id AND token = call.token AND state = 'leased' AND (wake_at > call.now OR call.reason = 'poison')
    RETURNING queue, lane, eventkit_stir('task', queue)
    INTO died;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM eventkit_mourn(died.queue, ARRAY[call.id], ARRAY[died.lane]);
    RETURN true;
END
$$

-- Delete a task.  Its key stays reserved.
CREATE FUNCTION eventkit_remove(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    ids bigint[] := ARRAY[$1];
    "limit" bigint := 2;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    stirred boolean;
BEGIN
    -- ReserveKeys:
    UPDATE eventkit_key AS k
    SET reserved_until = t.enqueued_at + coalesce(q.key_ttl, 86400000) * interval '1 ms'
    FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
    WHERE t.id = ANY (call.ids::bigint[]) AND k.queue = t.queue AND k.key = t.key AND k.task_id = t.id;
    -- ForgetKeys:
    DELETE FROM eventkit_key
    WHERE (queue, key) IN (
        SELECT queue, key FROM eventkit_key
        WHERE reserved_until <= call.now
        ORDER BY reserved_until
        LIMIT call.limit
        FOR UPDATE SKIP LOCKED
    );
    -- Remove:
    DELETE FROM eventkit_task
    WHERE id = ANY (call.ids::bigint[])
    RETURNING eventkit_stir('task', queue)
    INTO stirred;
END
$$

CREATE FUNCTION eventkit_ack(task json, result json DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    held record := eventkit_held($1);
    id bigint := held.id;
    token bigint := held.token;
    queue text := held.queue;
    result json := eventkit_check_payload($2, true);
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    held_0 bigint[] := ARRAY[held.id];
    held_1 bigint[] := ARRAY[held.token];
    held_2 text[] := ARRAY[result::text];
    ids bigint[] := ARRAY[held.id];
    "limit" bigint := 2;
    finished bigint;
    kept boolean;
    stirred boolean;
BEGIN
    -- Ack:
    DELETE FROM eventkit_task
    WHERE
        id = call.id AND token = call.token AND state = 'leased' AND (wake_at > call.now) IS TRUE AND key IS NULL
        AND NOT EXISTS (
            SELECT 1 FROM eventkit_queue
            WHERE name = queue AND (keep_done IS NOT NULL OR max_size IS NOT NULL OR max_running IS NOT NULL)
        )
    RETURNING id
    INTO finished;
    IF finished IS NULL THEN
        -- Finish:
        WITH
        held AS MATERIALIZED (
            SELECT t.id, h.result::json
            FROM
                (SELECT * FROM unnest(call.held_0::bigint[], call.held_1::bigint[], call.held_2::text[]) AS h (id, token, result) ORDER BY id) AS h
                CROSS JOIN LATERAL (
                    SELECT id FROM eventkit_task
                    WHERE id = h.id AND token = h.token AND state = 'leased' AND (wake_at > call.now) IS TRUE
                    FOR UPDATE
                ) AS t
        ),
        done AS (
            UPDATE eventkit_task AS t
            SET state = 'done', result = held.result, finished_at = call.now, wake_at = NULL, token = NULL
            FROM held
            WHERE t.id = held.id AND t.id = ANY (ARRAY(SELECT id FROM held))
            RETURNING t.id, t.queue
        )
        SELECT id, (SELECT q.keep_done FROM eventkit_queue AS q WHERE q.name = done.queue) IS NOT NULL
        FROM done
        WHERE eventkit_stir('task', queue)
        INTO finished, kept;
        IF finished IS NULL THEN
            RETURN false;
        ELSIF NOT kept THEN
            PERFORM eventkit_remove(call.id);
        ELSE
            -- ReserveKeys:
            UPDATE eventkit_key AS k
            SET reserved_until = t.enqueued_at + coalesce(q.key_ttl, 86400000) * interval '1 ms'
            FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
            WHERE t.id = ANY (call.ids::bigint[]) AND k.queue = t.queue AND k.key = t.key AND k.task_id = t.id;
            -- ForgetKeys:
            DELETE FROM eventkit_key
            WHERE (queue, key) IN (
                SELECT queue, key FROM eventkit_key
                WHERE reserved_until <= call.now
                ORDER BY reserved_until
                LIMIT call.limit
                FOR UPDATE SKIP LOCKED
            );
            -- ForgetDone:
            DELETE FROM eventkit_task
            WHERE id = ANY (ARRAY(
                SELECT t.id
                FROM
                    eventkit_queue AS q CROSS JOIN LATERAL (
                        SELECT d.id FROM eventkit_task AS d
                        WHERE
                            d.queue = q.name AND d.state = 'done' AND d.finished_at IS NOT NULL
                            AND d.finished_at <= call.now - q.keep_done * interval '1 ms'
                        LIMIT 1 + cardinality(call.ids::bigint[])
                        FOR UPDATE SKIP LOCKED
                    ) AS t
                WHERE q.name IN (SELECT queue FROM eventkit_task WHERE id = ANY (call.ids::bigint[]))
                LIMIT 1 + cardinality(call.ids::bigint[])
            ));
        END IF;
    END IF;
    IF call.result IS NOT NULL THEN
        PERFORM eventkit_save_task_result(call.id, call.result, call.queue);
    END IF;
    RETURN true;
END
$$

COMMENT ON FUNCTION eventkit_ack IS
    'Finishes a claimed task, and saves its result if one is given; returns false if it is no longer the caller''s.'

CREATE FUNCTION eventkit_save_task_result(task bigint, value json, queue text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    id text := $1::text;
    value json := $2;
    queue text := $3;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    stirred boolean;
BEGIN
    -- SaveTaskResult:
    INSERT INTO eventkit_result (id, value, expires_at)
    VALUES (
        call.id, call.value,
        call.now + greatest(3600000, (SELECT keep_done FROM eventkit_queue WHERE name = call.queue)) * interval '1 ms'
    )
    ON CONFLICT (id) DO UPDATE
    SET value = excluded.value, expires_at = excluded.expires_at
    RETURNING eventkit_stir('result', id)
    INTO stirred;
END
$$

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

CREATE FUNCTION eventkit_retry(task json, delay double precision DEFAULT NULL, error text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    held record := eventkit_held($1);
    id bigint := held.id;
    token bigint := held.token;
    delay bigint := eventkit_check_seconds('delay', $2, 0);
    error text := $3;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    attempt integer;
    most bigint;
    policy text;
    stirred boolean;
BEGIN
    -- ReadHeld:
    SELECT t.attempt, coalesce(t.max_attempts, q.max_attempts, 3), q.retry
    FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
    WHERE t.id = call.id AND t.token = call.token AND t.state = 'leased' AND (t.wake_at > call.now) IS TRUE
    FOR UPDATE OF t
    INTO call.attempt, most, policy;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF call.attempt >= most THEN
        PERFORM eventkit_bury(call.id, call.token, 'exhausted', call.error);
        RETURN true;
    END IF;
    call.delay := coalesce(call.delay, eventkit_retry_delay(call.attempt, policy::json));
    -- Postpone:
    UPDATE eventkit_task
    SET
        state = CASE WHEN call.delay > 0 THEN 'scheduled' ELSE 'ready' END,
        run_at = call.now + call.delay::bigint * interval '1 ms',
        wake_at = eventkit_wakes_at(call.now + call.delay::bigint * interval '1 ms', expires_at, call.now),
        error = call.error, token = NULL, lapsed = false
    WHERE id = call.id AND token = call.token
    RETURNING eventkit_stir('task', queue)
    INTO stirred;
    RETURN true;
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

CREATE FUNCTION eventkit_extend(task json, seconds double precision) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    held record := eventkit_held($1);
    id bigint := held.id;
    token bigint := held.token;
    lease bigint := eventkit_check_given('seconds', eventkit_check_seconds('seconds', $2, 0));
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    stirred boolean;
BEGIN
    -- Extend:
    WITH held AS MATERIALIZED (
        SELECT id, wake_at FROM eventkit_task
        WHERE id = call.id AND token = call.token AND state = 'leased' AND (wake_at > call.now) IS TRUE
        FOR UPDATE
    )
    UPDATE eventkit_task AS t
    SET wake_at = call.now + call.lease::bigint * interval '1 ms'
    FROM held
    WHERE t.id = held.id AND t.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING CASE WHEN t.wake_at < held.wake_at THEN eventkit_stir('task', queue) END
    INTO stirred;
    RETURN FOUND;
END
$$

COMMENT ON FUNCTION eventkit_extend IS
    'Lets the lease of a claimed task end a number of seconds from now; returns false if it is no longer the caller''s.'

CREATE FUNCTION eventkit_cancel(queue text, id bigint, running boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    queue text := eventkit_check_name('queue', $1);
    id bigint := eventkit_check_count('id', $2, 0);
    running boolean := coalesce($3, false);
    lane text;
    leased boolean;
BEGIN
    -- Cancel:
    SELECT lane, state = 'leased'
    FROM eventkit_task_now AS n
    WHERE
        queue = call.queue AND id = call.id AND (state IN ('scheduled', 'ready') OR state = 'leased' AND call.running::boolean)
        AND EXISTS (SELECT FROM eventkit_task AS t WHERE t.id = n.id AND t.state = n.stored_state FOR UPDATE)
    INTO call.lane, leased;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Revoke:
    UPDATE eventkit_task
    SET token = NULL
    WHERE id = call.id;
    PERFORM eventkit_remove(call.id);
    IF call.lane IS NOT NULL THEN
        PERFORM eventkit_unblock(call.queue, ARRAY[call.lane]);
    END IF;
    IF leased THEN
        PERFORM eventkit_tell('eventkit:cancelled', json_build_object('queue', call.queue, 'id', call.id), NULL);
    END IF;
    RETURN true;
END
$$

COMMENT ON FUNCTION eventkit_cancel IS
    'Cancels a waiting task, or also a running one, whose worker is notified; returns false if there is none.'

CREATE FUNCTION eventkit_stats(queue text) RETURNS json
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    most CONSTANT bigint := 10000;  -- Counts stop one above it.
    queue text := eventkit_check_name('queue', $1);
    "limit" bigint := most + 1;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    scheduled bigint;
    ready bigint;
    leased bigint;
    dead bigint;
    done bigint;
    moving bigint;
    due_ready bigint;
    was_ready bigint;
    due_dead bigint;
    age bigint;
    stopped boolean;
    highest bigint;
BEGIN
    -- ReadStats:
    WITH RECURSIVE
    clock (now) AS (SELECT call.now),
    due (stored_state, state, run_at) AS (
        SELECT stored_state, state, run_at
        FROM eventkit_task_now
        WHERE queue = call.queue AND stored_state IN ('scheduled', 'leased', 'ready') AND wake_at <= call.now
        LIMIT call.limit
    ),
    priorities (priority) AS (
        SELECT max(priority) FROM eventkit_task WHERE queue = call.queue AND state = 'ready'
        UNION ALL
        SELECT (SELECT max(t.priority) FROM eventkit_task AS t WHERE t.queue = call.queue AND t.state = 'ready' AND t.priority < p.priority)
        FROM priorities AS p
        WHERE p.priority IS NOT NULL
    )
    SELECT
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = call.queue AND state = 'scheduled' AND wake_at > call.now LIMIT call.limit) AS few),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = call.queue AND state = 'ready' LIMIT call.limit) AS few),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = call.queue AND state = 'leased' AND wake_at > call.now LIMIT call.limit) AS few),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = call.queue AND state = 'dead' AND finished_at IS NOT NULL LIMIT call.limit) AS few),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_task WHERE queue = call.queue AND state = 'done' AND finished_at IS NOT NULL LIMIT call.limit) AS few),
        (SELECT count(*) FROM due),
        (SELECT count(*) FROM due WHERE state = 'ready'),
        (SELECT count(*) FROM due WHERE stored_state = 'ready'),
        (SELECT count(*) FROM due WHERE state = 'dead'),
        eventkit_ms(now) - (
            SELECT eventkit_ms(min(run_at)) FROM (
                SELECT (
                    SELECT min(t.run_at) FROM eventkit_task AS t
                    WHERE
                        t.queue = call.queue AND t.state = 'ready' AND t.priority = p.priority
                        AND (t.expires_at IS NULL OR t.expires_at > now)
                ) AS run_at
                FROM priorities AS p
                UNION ALL
                SELECT run_at FROM due WHERE state = 'ready'
            ) AS oldest
        ),
        coalesce((SELECT paused FROM eventkit_queue WHERE name = call.queue), false)
    FROM clock
    INTO scheduled, ready, leased, dead, done, moving, due_ready, was_ready, due_dead, age, stopped;
    highest := greatest(call.scheduled, call.ready, call.leased, call.dead, call.done, moving);
    call.ready := greatest(0, call.ready + due_ready - was_ready);
    call.dead := call.dead + due_dead;
    RETURN json_build_object(
        'scheduled', least(call.scheduled, most), 'ready', least(call.ready, most), 'leased', least(call.leased, most),
        'dead', least(call.dead, most), 'done', least(call.done, most),
        'oldest_ready_age', CASE WHEN age IS NOT NULL THEN greatest(0, age) / 1000.0::double precision END,
        'paused', stopped, 'approximate', greatest(highest, call.ready, call.dead) > most
    );
END
$$

COMMENT ON FUNCTION eventkit_stats IS
    'Returns the numbers of a queue as an object.'

-- Locks, limits and results.

CREATE FUNCTION eventkit_lock_acquire(name text, ttl double precision DEFAULT 60) RETURNS json
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    name text := eventkit_check_name('lock', $1);
    ttl bigint := eventkit_check_seconds('ttl', coalesce($2, 60), 1);
    token bigint := eventkit_token();
    holder text := session_user || ':' || pg_backend_pid();
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    fence bigint;
BEGIN
    -- AcquireLock:
    INSERT INTO eventkit_lock AS l (name, fence, token, holder, ttl, expires_at)
    SELECT call.name, 1, call.token, call.holder, call.ttl::bigint, call.now + call.ttl::bigint * interval '1 ms'
    WHERE NOT EXISTS (
        SELECT FROM eventkit_lock
        WHERE name = call.name AND expires_at > call.now AND expires_at <= call.now + (ttl + 1000) * interval '1 ms'
    )
    ON CONFLICT (name) DO UPDATE
    SET
        fence = CASE WHEN l.expires_at > call.now THEN l.fence ELSE l.fence + 1 END,
        token = CASE WHEN l.expires_at > call.now THEN l.token ELSE excluded.token END,
        holder = CASE WHEN l.expires_at > call.now THEN l.holder ELSE excluded.holder END,
        ttl = CASE WHEN l.expires_at > call.now THEN l.ttl ELSE excluded.ttl END,
        expires_at = CASE
            WHEN l.expires_at > call.now
            THEN date_trunc('milliseconds', clock_timestamp()) + l.ttl * interval '1 ms'
            ELSE excluded.expires_at
        END
    WHERE
        (l.expires_at > call.now) IS NOT TRUE
        OR l.expires_at > clock_timestamp() + (l.ttl + 1000) * interval '1 ms'
    RETURNING CASE WHEN token = call.token THEN fence END
    INTO call.fence;
    RETURN CASE WHEN call.fence IS NOT NULL THEN json_build_object('name', call.name, 'token', call.token::text, 'fence', call.fence) END;
END
$$

COMMENT ON FUNCTION eventkit_lock_acquire IS
    'Acquires a lock for a number of seconds, and returns an object with its token and its fence; NULL if it is held already.'

CREATE FUNCTION eventkit_lock_release(name text, token text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    name text := eventkit_check_name('lock', $1);
    token bigint := $2::bigint;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    stirred boolean;
BEGIN
    -- ReleaseLock:
    UPDATE eventkit_lock
    SET token = NULL, holder = NULL, expires_at = NULL
    WHERE name = call.name AND token = call.token AND expires_at > call.now
    RETURNING eventkit_stir('lock', name)
    INTO stirred;
    RETURN FOUND;
END
$$

COMMENT ON FUNCTION eventkit_lock_release IS
    'Releases a lock; returns false if it was no longer held.'

CREATE FUNCTION eventkit_rate_limit(name text, "limit" bigint, per double precision) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    name text := eventkit_check_name('limit', $1);
    "limit" bigint := eventkit_check_count('limit', $2, 1);
    per bigint := eventkit_check_given('per', eventkit_check_seconds('per', $3, 1));
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    counted integer;
BEGIN
    -- CountCall:
    INSERT INTO eventkit_rate AS r (name, per, amount, counted_at, until)
    SELECT call.name, call.per, 1, call.now, eventkit_moment(eventkit_ms(call.now) - eventkit_ms(call.now) % call.per + call.per)
    WHERE NOT EXISTS (
        SELECT FROM eventkit_rate
        WHERE
            name = call.name AND per = call.per AND amount >= call.limit
            AND until > call.now AND until <= call.now + (call.per + 1000) * interval '1 ms'
    )
    ON CONFLICT (name, per) DO UPDATE
    SET
        amount = CASE
            WHEN call.now < r.until AND r.until <= clock_timestamp() + (r.per + 1000) * interval '1 ms' THEN r.amount + 1
            ELSE 1
        END,
        counted_at = call.now,
        until = CASE
            WHEN call.now < r.until AND r.until <= clock_timestamp() + (r.per + 1000) * interval '1 ms' THEN r.until
            ELSE excluded.until
        END
    WHERE
        r.amount < call.limit OR call.now >= r.until
        OR r.until > clock_timestamp() + (r.per + 1000) * interval '1 ms'
    RETURNING 1
    INTO counted;
    RETURN FOUND;
END
$$

COMMENT ON FUNCTION eventkit_rate_limit IS
    'Counts a call in the current window of a number of seconds; returns false if the limit is reached.'

-- The id is JSON: a task's number, or a string in quotes.
CREATE FUNCTION eventkit_save_result(id text, value json, ttl double precision) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
<<call>>
DECLARE
    id text := $1;
    value json := eventkit_check_payload($2);
    ttl bigint := eventkit_check_seconds('ttl', coalesce($3, 3600), 1);
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    stirred boolean;
BEGIN
    -- SaveResult:
    INSERT INTO eventkit_result (id, value, expires_at)
    VALUES (call.id, call.value, call.now + call.ttl::bigint * interval '1 ms')
    ON CONFLICT (id) DO UPDATE
    SET value = excluded.value, expires_at = excluded.expires_at
    RETURNING eventkit_stir('result', id)
    INTO stirred;
    RETURN true;
END
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
