-- Groups of tasks: their order, turns, limits and rates.
--
-- A ready task of a group is a ticket: a claim that draws it leases what the group allows, in an ordered queue the first
-- task of the group.  A ticket of a group that allows none is held: invisible to claims, until one of those that it waits
-- for, which are marked (blocks), ends and makes the next one a marked ticket (eventkit_release_group).  A group without
-- tokens has its tickets put off, each to the moment of a token of its own.

-- The lock of a group, for which claims do not wait.  Its holder reads the group in a later snapshot.
CREATE OR REPLACE FUNCTION eventkit_group_lock(queue text, group_key text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT hashtextextended($1 || ':' || $2, 'eventkit_task_id_seq'::regclass::oid::bigint)
$$

-- Make the next held task of the group of a task that has ended a ticket.  A claim that has held a task has changed what
-- made it wait, so the end of that sees the held task.  Rows that another transaction has locked are passed over:
-- it ends them, or makes them tickets too.
CREATE OR REPLACE FUNCTION eventkit_release_group() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    freed record;
    woken boolean;
BEGIN
    UPDATE eventkit_task
    SET
        state = 'ready', held = NULL, blocks = true,
        wake_at = eventkit_wakes_at(NULL, expires_at, date_trunc('milliseconds', clock_timestamp()))
    WHERE id = (
        SELECT t.id FROM eventkit_task AS t
        WHERE t.queue = OLD.queue AND t.group_key = OLD.group_key AND t.held IS NOT NULL
        ORDER BY t.priority DESC, t.turn, t.id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    )
    RETURNING priority, run_at INTO freed;
    IF FOUND THEN
        INSERT INTO eventkit_low_water (queue, priority, run_at) VALUES (OLD.queue, freed.priority, freed.run_at);
        woken := eventkit_wake('task', OLD.queue);
    END IF;
    RETURN NULL;
END
$$

-- The tokens of a bucket by now.
CREATE OR REPLACE FUNCTION eventkit_group_tokens(
    rate double precision, tokens double precision, refilled_at timestamptz, now timestamptz
) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT coalesce(
        least(greatest(1, $1), $2 + greatest(0, date_part('epoch', $4) - date_part('epoch', $3)) * $1), greatest(1, $1)
    )
$$

-- Whether a claim may begin: the queue has no limits of its own, and no task has to be promoted first, as far as a recent
-- look shows.  eventkit_claimed has the same conditions for other queues.
CREATE OR REPLACE FUNCTION eventkit_calm(queue text, now timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    mark timestamptz := (
        SELECT min(l.wake_at) FROM eventkit_low_water AS l
        WHERE l.queue = $1 AND l.raise_at > $2 AND l.wake_at <= $2
    );
BEGIN
    RETURN mark IS NOT NULL AND NOT EXISTS (
        SELECT FROM eventkit_task AS t
        WHERE t.queue = $1 AND t.state = 'scheduled' AND t.wake_at <= $2 AND t.wake_at >= mark
        UNION ALL
        SELECT FROM eventkit_task AS t
        WHERE t.queue = $1 AND t.state = 'leased' AND t.wake_at <= $2 AND t.wake_at >= mark
        UNION ALL
        SELECT FROM eventkit_task AS t
        WHERE t.queue = $1 AND t.state = (SELECT 'ready'::text) AND t.wake_at <= $2 AND t.wake_at >= mark
        UNION ALL
        SELECT FROM eventkit_queue AS q
        WHERE q.name = $1 AND (q.paused OR q.rate IS NOT NULL OR q.max_running IS NOT NULL)
        UNION ALL
        SELECT FROM eventkit_cluster_limit AS l WHERE l.queue = $1
    );
END
$$

-- Lease up to so many tasks of a queue that is ordered or limits its groups, and set aside those that have to wait, more
-- each time, to find others.  The caller has promoted due tasks.
CREATE OR REPLACE FUNCTION eventkit_claimed_in_groups(
    queue text, worker text, "limit" bigint, lease bigint, proof bigint
) RETURNS TABLE (
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
    remaining bigint := $3;
    lease bigint;
    token bigint := $5;
    now timestamptz;
    settings eventkit_queue;
    ids bigint[];
    groups text[];
    others bigint[];
    aside bigint[];
    number bigint;
    drawn bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION
            'queue % is ordered or limits its groups, and a claim from it needs the isolation level READ COMMITTED', quote_literal($1)
        USING ERRCODE = 'feature_not_supported';
    END IF;
    SELECT q.* INTO settings FROM eventkit_queue AS q WHERE q.name = call.queue;
    lease := coalesce($4, settings.lease, 300000);
    FOR round IN 0..7 LOOP
        now := date_trunc('milliseconds', clock_timestamp());
        drawn := CASE WHEN round = 0 THEN remaining ELSE least(greatest(remaining, 256), remaining << 2 * round) END;
        WITH
        in_turn AS MATERIALIZED (
            SELECT t.id, t.group_key FROM eventkit_task AS t
            WHERE
                settings.fair AND t.queue = call.queue AND t.state = 'ready' AND t.turn IS NOT NULL
                AND (t.expires_at IS NULL OR t.expires_at > call.now)
            ORDER BY t.priority DESC, t.turn, t.id
            LIMIT drawn
            FOR UPDATE SKIP LOCKED
        ),
        as_due AS MATERIALIZED (
            SELECT t.id, t.group_key
            FROM
                (
                    SELECT priority, min(run_at) AS run_at FROM eventkit_low_water
                    WHERE queue = call.queue
                    GROUP BY priority
                    ORDER BY priority DESC
                ) AS low
                CROSS JOIN LATERAL (
                    SELECT id, group_key FROM eventkit_task
                    WHERE
                        queue = call.queue AND state = 'ready' AND priority = low.priority AND run_at >= low.run_at
                        AND (expires_at IS NULL OR expires_at > call.now)
                    ORDER BY run_at, id
                    LIMIT drawn
                    FOR UPDATE SKIP LOCKED
                ) AS t
            WHERE NOT EXISTS (SELECT FROM in_turn)
            LIMIT drawn
        ),
        numbered AS MATERIALIZED (
            SELECT
                id, group_key, row_number() OVER () AS place,
                group_key IS NULL OR pg_try_advisory_xact_lock(eventkit_group_lock(call.queue, group_key)) AS ours
            FROM (SELECT id, group_key FROM in_turn UNION ALL SELECT id, group_key FROM as_due) AS t
        )
        SELECT
            array_agg(id ORDER BY place) FILTER (WHERE ours), array_agg(group_key ORDER BY place) FILTER (WHERE ours),
            array_agg(id) FILTER (WHERE NOT ours)
        INTO ids, groups, others
        FROM numbered;
        EXIT WHEN ids IS NULL AND others IS NULL;
        -- From here on in a later snapshot than that of the transactions which had the locks before.  A group's first task is
        -- found by a comparison of rows, because the planner would search for the least id in the index of ids.
        RETURN QUERY
        WITH
        tickets AS MATERIALIZED (
            SELECT u.id, u.group_key, u.place, row_number() OVER (PARTITION BY u.group_key ORDER BY u.place) AS number
            FROM unnest(ids, groups) WITH ORDINALITY AS u (id, group_key, place)
        ),
        permitted AS MATERIALIZED (
            SELECT
                CASE
                    WHEN settings.ordered AND d.group_key <> '' THEN least(
                        (
                            SELECT CASE WHEN (w.queue, w.group_key, w.state) = (call.queue, d.group_key, 'scheduled') THEN w.id END
                            FROM (
                                SELECT t.queue, t.group_key, t.state, t.id FROM eventkit_task AS t
                                WHERE t.group_key IS NOT NULL AND (t.queue, t.group_key, t.state) >= (call.queue, d.group_key, 'scheduled')
                                ORDER BY t.queue, t.group_key, t.state, t.id
                                LIMIT 1
                            ) AS w
                        ),
                        (
                            SELECT CASE WHEN (w.queue, w.group_key, w.state) = (call.queue, d.group_key, 'ready') THEN w.id END
                            FROM (
                                SELECT t.queue, t.group_key, t.state, t.id FROM eventkit_task AS t
                                WHERE t.group_key IS NOT NULL AND (t.queue, t.group_key, t.state) >= (call.queue, d.group_key, 'ready')
                                ORDER BY t.queue, t.group_key, t.state, t.id
                                LIMIT 1
                            ) AS w
                        )
                    )
                    ELSE d.id
                END AS id,
                d.place
            FROM
                tickets AS d
                LEFT JOIN eventkit_group_rate AS r ON r.queue = call.queue AND r.group_key = d.group_key
            WHERE
                d.group_key IS NULL
                OR (
                    settings.ordered IS NOT TRUE OR d.group_key = ''
                    OR d.number = 1
                    AND NOT EXISTS (
                        SELECT FROM eventkit_task AS b
                        WHERE b.queue = call.queue AND b.group_key = d.group_key AND b.state = 'leased'
                    )
                    AND NOT (
                        settings.on_dead IS NOT DISTINCT FROM 'stop' AND EXISTS (
                            SELECT FROM eventkit_task AS b
                            WHERE b.queue = call.queue AND b.group_key = d.group_key AND b.state = 'dead'
                        )
                    )
                )
                AND (
                    settings.group_max_running IS NULL
                    OR d.number <= settings.group_max_running - (
                        SELECT count(*) FROM eventkit_task AS b
                        WHERE b.queue = call.queue AND b.group_key = d.group_key AND b.state = 'leased'
                            AND (b.wake_at > call.now) IS TRUE
                    )
                )
                AND (
                    settings.group_rate IS NULL
                    OR d.number <= eventkit_group_tokens(settings.group_rate, r.tokens, r.refilled_at, call.now) + 1e-6
                )
        ),
        locked AS MATERIALIZED (
            SELECT t.id FROM permitted AS p JOIN eventkit_task AS t ON t.id = p.id
            WHERE
                t.id = ANY (ARRAY(SELECT q.id FROM permitted AS q)) AND (t.state = 'ready' OR t.held IS NOT NULL)
                AND (t.expires_at IS NULL OR t.expires_at > call.now)
            ORDER BY p.place
            LIMIT call.remaining
            FOR UPDATE OF t SKIP LOCKED
        ),
        leased AS (
            UPDATE eventkit_task AS t
            SET
                state = 'leased', attempt = attempt + 1, worker = call.worker, token = call.token, held = NULL,
                claimed_at = call.now, wake_at = call.now + call.lease * interval '1 ms'
            WHERE t.id = ANY (ARRAY(SELECT l.id FROM locked AS l))
            RETURNING t.*
        ),
        charged AS (
            INSERT INTO eventkit_group_rate AS r (queue, group_key, tokens, reserved, refilled_at, until)
            SELECT
                call.queue, group_key, greatest(1, settings.group_rate) - count(*), greatest(1, settings.group_rate), call.now,
                call.now + count(*) * interval '1 s' / settings.group_rate
            FROM leased
            WHERE settings.group_rate IS NOT NULL
            GROUP BY group_key
            ON CONFLICT (queue, group_key) DO UPDATE
            SET
                tokens = eventkit_group_tokens(settings.group_rate, r.tokens, r.refilled_at, call.now)
                    + excluded.tokens - excluded.reserved,
                reserved = least(
                    eventkit_group_tokens(settings.group_rate, r.tokens, r.refilled_at, call.now),
                    eventkit_group_tokens(settings.group_rate, r.reserved, r.refilled_at, call.now)
                ),
                refilled_at = call.now,
                until = greatest(r.until, call.now) + (excluded.until - call.now)
        )
        SELECT
            t.id, t.queue, t.payload::text, t.key, t.headers::text, t.priority, t.attempt, coalesce(t.max_attempts, settings.max_attempts, 3),
            eventkit_ms(t.run_at), eventkit_ms(t.enqueued_at), eventkit_ms(t.expires_at), eventkit_ms(t.wake_at), t.token, call.lease,
            t.lapsed, t.group_key, t.turn
        FROM leased AS t;
        GET DIAGNOSTICS number = ROW_COUNT;
        remaining := remaining - number;
        EXIT WHEN remaining <= 0 OR others IS NULL AND number = cardinality(ids) AND number < drawn;
        -- What is left of the tickets waits for a task that runs, for an earlier one, or for a dead one, which are locked and
        -- marked, so that they end after this transaction.
        WITH
        tickets AS MATERIALIZED (
            SELECT t.id, t.group_key FROM eventkit_task AS t WHERE t.id = ANY (ids) AND t.state = 'ready' AND t.group_key IS NOT NULL
        ),
        blocking AS MATERIALIZED (
            SELECT d.group_key, b.id, b.blocks, b.state
            FROM
                (SELECT DISTINCT group_key FROM tickets) AS d
                CROSS JOIN LATERAL (
                    SELECT t.id, t.blocks, t.state FROM eventkit_task AS t
                    WHERE t.queue = call.queue AND t.group_key = d.group_key AND t.state = 'leased'
                    LIMIT coalesce(settings.group_max_running, 1)
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS b
            UNION ALL
            SELECT d.group_key, b.id, b.blocks, b.state
            FROM
                (SELECT group_key, min(id) AS first FROM tickets WHERE settings.ordered AND group_key <> '' GROUP BY group_key) AS d
                CROSS JOIN LATERAL (
                    SELECT t.id, t.blocks, t.state FROM eventkit_task AS t
                    WHERE
                        t.id = (
                            SELECT CASE WHEN (w.queue, w.group_key, w.state) = (call.queue, d.group_key, 'scheduled') THEN w.id END
                            FROM (
                                SELECT t.queue, t.group_key, t.state, t.id FROM eventkit_task AS t
                                WHERE t.group_key IS NOT NULL AND (t.queue, t.group_key, t.state) >= (call.queue, d.group_key, 'scheduled')
                                ORDER BY t.queue, t.group_key, t.state, t.id
                                LIMIT 1
                            ) AS w
                        )
                        AND t.state = 'scheduled' AND t.held IS NULL AND t.id < d.first
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS b
            UNION ALL
            SELECT d.group_key, b.id, b.blocks, b.state
            FROM
                (SELECT DISTINCT group_key FROM tickets WHERE settings.ordered AND group_key <> '') AS d
                CROSS JOIN LATERAL (
                    SELECT t.id, t.blocks, t.state FROM eventkit_task AS t
                    WHERE
                        settings.on_dead = 'stop' AND t.queue = call.queue AND t.group_key = d.group_key AND t.state = 'dead'
                    LIMIT 1
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS b
        ),
        marked AS (
            UPDATE eventkit_task AS t SET blocks = true
            WHERE t.id = ANY (ARRAY(SELECT b.id FROM blocking AS b WHERE b.blocks IS NOT TRUE))
        ),
        waiting AS MATERIALIZED (
            SELECT b.group_key
            FROM blocking AS b
            GROUP BY b.group_key
            HAVING
                settings.ordered AND b.group_key <> ''
                OR settings.group_max_running <= count(*) FILTER (WHERE b.state = 'leased')
        ),
        held AS (
            UPDATE eventkit_task AS t
            SET state = 'scheduled', held = true, wake_at = coalesce(t.expires_at, '9999-12-31 23:59:59.999+00')
            WHERE t.id = ANY (ARRAY(SELECT d.id FROM tickets AS d WHERE d.group_key IN (SELECT w.group_key FROM waiting AS w)))
            RETURNING t.id
        )
        SELECT array_agg(d.id) INTO aside FROM tickets AS d WHERE d.id NOT IN (SELECT h.id FROM held AS h);
        IF aside IS NOT NULL AND settings.group_rate IS NOT NULL THEN
            -- eventkit_pace finds the moment.
            UPDATE eventkit_task AS t
            SET state = 'scheduled', wake_at = '9999-12-31 23:59:59.999+00'
            FROM eventkit_group_rate AS r
            WHERE
                t.id = ANY (aside) AND r.queue = call.queue AND r.group_key = t.group_key
                AND eventkit_group_tokens(settings.group_rate, r.tokens, r.refilled_at, call.now) < 1 - 1e-6;
        END IF;
        -- Another transaction has their groups, or is ending what they wait for.
        UPDATE eventkit_task AS t
        SET state = 'scheduled', wake_at = eventkit_wakes_at(call.now + interval '20 ms', t.expires_at, call.now)
        WHERE t.id = ANY (others || aside) AND t.state = 'ready';
    END LOOP;
END
$$

-- Of a task that is added to a queue which is fair or limits its groups.  Without a group it belongs to the group ''.  Its
-- turn is one step (a hundred thousandth of a second, divided by the weight of the group) after the group's last one, and
-- not before that of the first ready task; without one, the time, in nanoseconds, which exceeds all turns before.
CREATE OR REPLACE FUNCTION eventkit_join_group() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settings eventkit_queue;
BEGIN
    SELECT q.* INTO settings
    FROM eventkit_queue AS q
    WHERE q.name = NEW.queue AND (q.fair OR q.group_max_running IS NOT NULL OR q.group_rate IS NOT NULL);
    IF FOUND THEN
        NEW.group_key := coalesce(NEW.group_key, '');
        IF settings.fair THEN
            NEW.turn := greatest(
                coalesce(
                    (
                        SELECT t.turn FROM eventkit_task AS t
                        WHERE t.queue = NEW.queue AND t.state = 'ready' AND t.priority = NEW.priority AND t.turn IS NOT NULL
                        ORDER BY t.turn LIMIT 1
                    ),
                    eventkit_ms(clock_timestamp()) * 1000000
                ),
                (
                    SELECT t.turn FROM eventkit_task AS t
                    WHERE
                        t.queue = NEW.queue AND t.group_key = NEW.group_key AND t.priority = NEW.priority
                        AND t.turn IS NOT NULL
                    ORDER BY t.turn DESC LIMIT 1
                )
                + floor(10000 / coalesce((settings.weights::json ->> NEW.group_key)::double precision, 1))::bigint
            );
        END IF;
    END IF;
    RETURN NEW;
END
$$

-- A task that becomes ready again has waited for itself or for its group: its turn is not before that of the first ready
-- task.  A task that is put off reserves a token, and wakes at its moment.
CREATE OR REPLACE FUNCTION eventkit_pace() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    rate double precision;
    bucket eventkit_group_rate;
BEGIN
    IF NEW.state = 'ready' THEN
        NEW.turn := greatest(NEW.turn, (
            SELECT t.turn FROM eventkit_task AS t
            WHERE t.queue = NEW.queue AND t.state = 'ready' AND t.priority = NEW.priority AND t.turn IS NOT NULL
            ORDER BY t.turn LIMIT 1
        ));
        RETURN NEW;
    END IF;
    SELECT q.group_rate INTO rate FROM eventkit_queue AS q WHERE q.name = NEW.queue;
    IF rate IS NULL THEN
        RETURN NEW;
    END IF;
    SELECT r.* INTO bucket FROM eventkit_group_rate AS r WHERE r.queue = NEW.queue AND r.group_key = NEW.group_key FOR UPDATE;
    bucket.tokens := eventkit_group_tokens(rate, bucket.tokens, bucket.refilled_at, now);
    bucket.reserved := least(bucket.tokens, eventkit_group_tokens(rate, bucket.reserved, bucket.refilled_at, now));
    bucket.reserved := bucket.reserved - 1;
    NEW.wake_at := least(NEW.expires_at, now + interval '1 ms' + greatest(0, -bucket.reserved) * interval '1 s' / rate);
    INSERT INTO eventkit_group_rate AS r (queue, group_key, tokens, reserved, refilled_at, until)
    VALUES (
        NEW.queue, NEW.group_key, bucket.tokens, bucket.reserved, now,
        now + (greatest(1, rate) - least(bucket.tokens, bucket.reserved)) * interval '1 s' / rate
    )
    ON CONFLICT (queue, group_key) DO UPDATE
    SET tokens = excluded.tokens, reserved = excluded.reserved, refilled_at = excluded.refilled_at, until = excluded.until;
    RETURN NEW;
END
$$

-- Give the waiting tasks of a queue whose settings have changed groups and turns, and hold none.
CREATE OR REPLACE FUNCTION eventkit_regroup(queue text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
BEGIN
    UPDATE eventkit_task AS t
    SET
        group_key = n.group_key, turn = n.turn, held = NULL,
        state = CASE WHEN t.state = 'scheduled' AND t.run_at <= now THEN 'ready' ELSE t.state END,
        wake_at = CASE
            WHEN t.state = 'scheduled' AND t.run_at <= now THEN eventkit_wakes_at(NULL, t.expires_at, now) ELSE t.wake_at
        END
    FROM (
        SELECT
            o.id,
            CASE
                WHEN q.fair OR q.group_max_running IS NOT NULL OR q.group_rate IS NOT NULL THEN coalesce(o.group_key, '')
                ELSE o.group_key
            END AS group_key,
            CASE WHEN q.fair THEN eventkit_ms(now) * 1000000 + (
                row_number() OVER (PARTITION BY o.priority, coalesce(o.group_key, '') ORDER BY o.run_at, o.id) * 10000
                / coalesce((q.weights::json ->> o.group_key)::double precision, 1)
            )::bigint END AS turn
        FROM eventkit_task AS o JOIN eventkit_queue AS q ON q.name = o.queue
        WHERE o.queue = $1 AND o.state IN ('ready', 'scheduled', 'leased')
    ) AS n
    WHERE
        t.id = n.id
        AND (t.state IN ('ready', 'scheduled') OR t.state = 'leased' AND t.group_key IS DISTINCT FROM n.group_key);
    INSERT INTO eventkit_low_water (queue, priority)
    SELECT DISTINCT $1, l.priority FROM eventkit_low_water AS l WHERE l.queue = $1;
    RETURN eventkit_wake('task', $1);
END
$$

-- As eventkit_hold_history, for the triggers of queues that are fair or limit their groups.
CREATE OR REPLACE FUNCTION eventkit_hold_sharing(queue text, shared boolean)
RETURNS TABLE (needed boolean, there boolean, obstacle text)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    alone boolean := pg_advisory_xact_lock(
        hashtextextended('eventkit.sharing', 'eventkit_event_id_seq'::regclass::oid::bigint)
    ) IS NULL;
    tasks CONSTANT regclass := 'eventkit_task'::regclass;
    owner name := (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = tasks);
BEGIN
    needed := $2 OR EXISTS (
        SELECT FROM eventkit_queue AS q
        WHERE q.name <> $1 AND (q.fair OR q.group_max_running IS NOT NULL OR q.group_rate IS NOT NULL)
    );
    there := EXISTS (
        SELECT FROM pg_trigger AS t WHERE t.tgrelid = tasks AND t.tgfoid = 'eventkit_join_group'::regproc
    );
    IF needed AND NOT there AND NOT has_table_privilege(tasks, 'TRIGGER') THEN
        obstacle := format(
            'fair queues and limits of groups need triggers on %s, which role %I may not create: GRANT TRIGGER ON %s TO %I, '
            'or let its owner %I configure the queue',
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
