-- Claiming.

-- How many more tasks of the queue may run by the limits over several queues; NULL without any.
CREATE OR REPLACE FUNCTION eventkit_cluster_room(queue text, now timestamptz) RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT min(l.max_running - (
        SELECT sum(
            (SELECT count(*) FROM eventkit_task AS t WHERE t.queue = o.queue AND t.state = 'leased' AND t.wake_at > $2)
        )
        FROM eventkit_cluster_limit AS o
        WHERE o.name = l.name
    ))::bigint
    FROM eventkit_cluster_limit AS l
    WHERE l.queue = $1
$$

-- The settings and numbers that a claim needs.  A queue with limits is locked for the claim, and counted after that,
-- in a later snapshot.  ``(SELECT 'ready')`` is hidden from the planner, as in claim.sql.
CREATE OR REPLACE FUNCTION eventkit_gate(queue text) RETURNS TABLE (
    paused boolean, lease bigint, max_attempts bigint, rate double precision, burst double precision,
    tokens double precision, refilled_at bigint, max_running bigint, running bigint, room bigint, due boolean, now bigint,
    grouped boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    mark timestamptz;
    raised boolean;
    shared boolean := EXISTS (SELECT FROM eventkit_cluster_limit AS l WHERE l.queue = $1);
BEGIN
    IF NOT EXISTS (
        SELECT FROM eventkit_low_water AS l WHERE l.queue = $1 AND l.raise_at > moment AND l.wake_at <= moment
    ) THEN
        raised := eventkit_raise($1);
    END IF;
    PERFORM FROM eventkit_queue AS q
    WHERE q.name = $1 AND (q.rate IS NOT NULL OR q.max_running IS NOT NULL)
    FOR UPDATE;
    IF shared THEN
        PERFORM FROM eventkit_cluster_limit AS l
        WHERE l.name IN (SELECT o.name FROM eventkit_cluster_limit AS o WHERE o.queue = $1)
        ORDER BY l.name, l.queue
        FOR UPDATE;
    END IF;
    moment := date_trunc('milliseconds', clock_timestamp());
    room := CASE WHEN shared THEN eventkit_cluster_room($1, moment) END;
    mark := (
        SELECT coalesce(min(l.wake_at), '-infinity') FROM eventkit_low_water AS l
        WHERE l.queue = $1 AND l.raise_at > moment - interval '1 s' AND l.wake_at <= moment
    );
    RETURN QUERY
    SELECT
        coalesce(q.paused, false), coalesce(q.lease, 300000), coalesce(q.max_attempts, 3),
        q.rate, q.burst, q.tokens, eventkit_ms(q.refilled_at), q.max_running,
        CASE WHEN q.max_running IS NOT NULL THEN (
            SELECT count(*) FROM eventkit_task AS t WHERE t.queue = $1 AND t.state = 'leased' AND t.wake_at > moment
        ) END,
        room,
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
        eventkit_ms(moment),
        coalesce(q.ordered OR q.group_max_running IS NOT NULL OR q.group_rate IS NOT NULL, false)
    FROM (SELECT) AS one LEFT JOIN eventkit_queue AS q ON q.name = $1;
END
$$

-- Move due tasks: scheduled and lapsed tasks become ready, exhausted and expired ones die.  Return their number.  A
-- task that has been due for a while may lie before the place where claims begin to scan (eventkit_low_water).
CREATE OR REPLACE FUNCTION eventkit_promote(queue text, "limit" bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    number bigint;
    died bigint[];
BEGIN
    WITH
    woken AS MATERIALIZED (SELECT eventkit_wake('task', $1)),
    due AS MATERIALIZED (
        SELECT
            t.id, t.expires_at <= now AS expired,
            t.expires_at <= now
            OR t.state = 'leased' AND t.attempt >= coalesce(
                t.max_attempts, (SELECT q.max_attempts FROM eventkit_queue AS q WHERE q.name = $1), 3
            ) AS dies
        FROM woken, eventkit_task AS t
        WHERE
            t.queue = $1 AND t.state IN ('scheduled', 'leased', 'ready') AND t.wake_at <= now
            AND t.wake_at >= (
                SELECT coalesce(min(l.wake_at), '-infinity') FROM eventkit_low_water AS l
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
            code = CASE
                WHEN dies AND expired THEN 'EXPIRED'
                WHEN t.state = 'leased' THEN 'LEASE_LOST'
                ELSE t.code
            END,
            finished_at = CASE WHEN dies THEN now END,
            wake_at = CASE WHEN dies IS NOT TRUE THEN t.expires_at END,
            token = NULL, held = NULL, turn = CASE WHEN dies IS NOT TRUE THEN t.turn END,
            lapsed = t.lapsed OR t.state = 'leased'
        FROM due
        WHERE t.id = due.id AND t.id = ANY (ARRAY(SELECT id FROM due))
        RETURNING t.id, t.queue, t.state, t.priority, t.run_at
    ),
    lowered AS (
        INSERT INTO eventkit_low_water (queue, priority, run_at)
        SELECT m.queue, m.priority, min(m.run_at)
        FROM moved AS m
        WHERE
            m.state = 'ready' AND (
                m.run_at < now - interval '25 ms'
                OR NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = m.queue AND l.priority = m.priority)
            )
        GROUP BY m.queue, m.priority
    )
    SELECT count(*), array_agg(id) FILTER (WHERE state = 'dead')
    INTO number, died
    FROM moved;
    IF died IS NOT NULL THEN
        PERFORM eventkit_settle_dead(died);
    END IF;
    RETURN number;
END
$$

-- Store the remaining tokens of the queue's bucket, if it has one, and write the rows of its limits over several queues: a
-- concurrent count in an older snapshot then fails to serialize.
CREATE OR REPLACE FUNCTION eventkit_spend_tokens(queue text, tokens double precision, refilled_at bigint) RETURNS void
LANGUAGE sql VOLATILE
AS $$
    UPDATE eventkit_cluster_limit SET max_running = max_running WHERE queue = $1;
    UPDATE eventkit_queue SET tokens = $2, refilled_at = eventkit_moment($3) WHERE name = $1
$$

-- Lease the first ready tasks to a worker; `proof` is the token of the leases.
CREATE OR REPLACE FUNCTION eventkit_claimed(queue text, worker text, "limit" bigint, lease bigint, proof bigint)
RETURNS TABLE (
    id bigint, queue_name text, payload text, key text, headers text, priority integer, attempt integer,
    max_attempts bigint, run_ms bigint, enqueued_ms bigint, expires_ms bigint, lease_expires_ms bigint, token bigint,
    lease_ms bigint, lapsed boolean, group_key text, turn bigint
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
    grouped boolean := (
        SELECT q.ordered OR q.group_max_running IS NOT NULL OR q.group_rate IS NOT NULL FROM eventkit_queue AS q
        WHERE q.name = call.queue
    );
BEGIN
    IF grouped AND eventkit_calm(call.queue, call.now) THEN
        RETURN QUERY SELECT * FROM eventkit_claimed_in_groups(call.queue, call.worker, call.limit, call.lease, call.token);
        GET DIAGNOSTICS number = ROW_COUNT;
        IF number > 0 THEN
            RETURN;
        END IF;
    END IF;
    LOOP
        IF grouped IS NOT TRUE THEN
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
                FROM eventkit_low_water
                WHERE queue = call.queue AND raise_at > call.now - interval '1 s' AND wake_at <= call.now
            ),
            settings AS MATERIALIZED (
                SELECT coalesce(call.lease::bigint, lease, 300000) AS lease, coalesce(max_attempts, 3) AS max_attempts,
                    coalesce(fair, false) AS fair
                FROM (SELECT) AS one LEFT JOIN eventkit_queue ON name = call.queue
                WHERE
                    passed
                    OR paused IS NOT TRUE AND rate IS NULL AND max_running IS NULL
                    AND NOT EXISTS (SELECT FROM eventkit_cluster_limit AS l WHERE l.queue = call.queue)
                    AND EXISTS (
                        SELECT FROM eventkit_low_water
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
            in_turn AS MATERIALIZED (
                SELECT t.id
                FROM
                    settings
                    CROSS JOIN LATERAL (
                        SELECT id FROM eventkit_task
                        WHERE
                            queue = call.queue AND state = 'ready' AND turn IS NOT NULL
                            AND (expires_at > call.now) IS NOT false
                        ORDER BY priority DESC, turn, id
                        LIMIT call.limit
                        FOR UPDATE SKIP LOCKED
                    ) AS t
                WHERE settings.fair
            ),
            best AS MATERIALIZED (
                SELECT t.id
                FROM
                    settings
                    CROSS JOIN (
                        SELECT priority, min(run_at) AS run_at FROM eventkit_low_water
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
                WHERE NOT EXISTS (SELECT FROM in_turn)
                LIMIT call.limit
            )
            UPDATE eventkit_task AS t
            SET
                state = 'leased', attempt = attempt + 1, worker = call.worker, token = call.token,
                claimed_at = call.now, wake_at = call.now + settings.lease * interval '1 ms'
            FROM settings
            WHERE t.id = ANY (ARRAY(SELECT id FROM in_turn UNION ALL SELECT id FROM best))
            RETURNING
                t.id, queue, payload::text, key, headers::text, priority, attempt, coalesce(t.max_attempts, settings.max_attempts),
                eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(wake_at), token, settings.lease, lapsed,
                group_key, turn
            ;
            GET DIAGNOSTICS number = ROW_COUNT;
            EXIT WHEN number > 0 OR passed;
        END IF;
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
            call.limit, gate.max_running - gate.running, gate.room, floor(call.tokens + 1e-6)::bigint
        ) END;
        IF call.limit <= 0 THEN
            RETURN;
        END IF;
        passed := true;
        IF gate.grouped THEN
            RETURN QUERY SELECT * FROM eventkit_claimed_in_groups(call.queue, call.worker, call.limit, call.lease, call.token);
            GET DIAGNOSTICS number = ROW_COUNT;
            EXIT;
        END IF;
        call.now := date_trunc('milliseconds', clock_timestamp());
    END LOOP;
    IF number > 0 AND passed THEN
        IF gate.rate IS NOT NULL OR gate.max_running IS NOT NULL OR gate.room IS NOT NULL THEN
            PERFORM eventkit_spend_tokens(call.queue, call.tokens - number, gate.now);
        END IF;
    END IF;
END
$$

CREATE OR REPLACE FUNCTION eventkit_claim(
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
            'lease_ms', c.lease_ms, 'lapsed', c.lapsed, 'group', nullif(c.group_key, '')
        ) ORDER BY c.priority DESC, c.turn, c.run_ms, c.id), '[]')
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
