-- Queues: keys, bounds, the place where claims begin, enqueueing, and numbers.

-- A key is held from the enqueue on, in a row that outlives the task: without a limit while the task exists, then
-- until the reservation ends.  Concurrent producers conflict on its primary key.
CREATE OR REPLACE FUNCTION eventkit_hold_key() RETURNS trigger
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
        UPDATE eventkit_key AS k SET task_id = NEW.id, reserved_until = 'infinity', payload = NULL
        WHERE k.queue = NEW.queue AND k.key = NEW.key AND k.task_id = held.task_id;
        IF FOUND THEN
            RETURN NEW;
        END IF;
    END IF;
    RETURN NULL;
END
$$

-- The number of tasks that count towards max_size.
CREATE OR REPLACE FUNCTION eventkit_size(queue text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT
        (SELECT count(*) FROM eventkit_task AS t WHERE t.queue = $1 AND t.state = 'ready')
        + (SELECT count(*) FROM eventkit_task AS t WHERE t.queue = $1 AND t.state IN ('scheduled', 'leased') AND t.wake_at IS NOT NULL)
$$

-- The queue's limits for producers: its bound and the number of tasks that count towards it, the largest payload, and the
-- bucket of its rate; no row without any.  The caller holds them until the end of the transaction.  The row is written,
-- not only locked, so that a transaction with a snapshot older than another enqueue fails to serialize instead of
-- counting too few.
CREATE OR REPLACE FUNCTION eventkit_room(queue text) RETURNS TABLE (
    max_size bigint, size bigint, max_bytes bigint, rate double precision, burst double precision,
    tokens double precision, refilled_at bigint, now bigint
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    bounds eventkit_queue;
BEGIN
    UPDATE eventkit_queue AS q SET paused = q.paused
    WHERE q.name = $1 AND (q.max_size IS NOT NULL OR q.max_bytes IS NOT NULL OR q.enqueue_rate IS NOT NULL)
    RETURNING q.* INTO bounds;
    IF FOUND THEN
        RETURN QUERY SELECT
            bounds.max_size, CASE WHEN bounds.max_size IS NOT NULL THEN eventkit_size($1) END, bounds.max_bytes,
            bounds.enqueue_rate, bounds.enqueue_burst, bounds.enqueue_tokens,
            eventkit_ms(bounds.enqueue_refilled_at), eventkit_ms(clock_timestamp());
    END IF;
END
$$

-- Take a token of the queue's rate for producers, and raise an error if there is none.  After a clock that was ahead by
-- more than a second, the bucket is full.
CREATE OR REPLACE FUNCTION eventkit_spend_enqueue_token(queue text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    room record;
    content double precision;
BEGIN
    SELECT * INTO room FROM eventkit_room($1);
    IF room.rate IS NULL THEN
        RETURN;
    END IF;
    content := least(
        coalesce(room.burst, greatest(1, room.rate)),
        CASE
            WHEN room.refilled_at <= room.now + 1000
            THEN room.tokens + greatest(0, room.now - room.refilled_at) * room.rate / 1000
        END
    );
    IF content < 1 - 1e-6 THEN
        RAISE EXCEPTION
            'queue % has reached its enqueue_rate: try again in % s', quote_literal($1), round(((1 - content) / room.rate)::numeric, 3)
        USING ERRCODE = 'configuration_limit_exceeded';
    END IF;
    UPDATE eventkit_queue SET enqueue_tokens = content - 1, enqueue_refilled_at = eventkit_moment(room.now) WHERE name = $1;
END
$$

-- Whether two payloads are the same value; jsonb, which compares them, refuses NULs and some numbers.
CREATE OR REPLACE FUNCTION eventkit_same_json(one json, other json) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN $1::text = $2::text OR $1::jsonb = $2::jsonb;
EXCEPTION WHEN data_exception THEN
    RETURN false;
END
$$

-- Move the beginning of the queue's priorities up to the first ready task of each, but not beyond a time shortly before
-- the oldest transaction in progress began, because that may add a task due since then.  Sometimes, less often the
-- longer it takes, the scan starts from the beginning, for tasks added by a plain INSERT.
CREATE OR REPLACE FUNCTION eventkit_raise(queue text) RETURNS boolean
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
        SELECT FROM eventkit_low_water AS l WHERE l.queue = $1 AND l.look_at > began AND l.wake_at <= began
    );
BEGIN
    WITH RECURSIVE
    old AS MATERIALIZED (
        SELECT l.ctid AS place, l.priority, l.run_at, l.wake_at, l.look_at FROM eventkit_low_water AS l WHERE l.queue = $1
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
    gone AS (DELETE FROM eventkit_low_water WHERE ctid = ANY (ARRAY(SELECT place FROM old))),
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
        WHERE NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = $1) AND NOT EXISTS (SELECT FROM found WHERE priority = 0)
    )
    INSERT INTO eventkit_low_water (queue, priority, run_at, wake_at, raise_at, look_at)
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

-- Add a task that is due now and has no key, if there is room for it, and no other limit for producers.  Mostly there is
-- no bound, and claims scan the priority already: then it is one statement.
CREATE OR REPLACE FUNCTION eventkit_add(queue text, payload json, headers json, priority integer, max_attempts bigint)
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
        NOT EXISTS (
            SELECT FROM eventkit_queue AS q
            WHERE
                q.name = $1
                AND (
                    q.max_size IS NOT NULL OR q.max_bytes IS NOT NULL OR q.enqueue_rate IS NOT NULL
                    OR q.ordered AND $4 <> 0
                )
        )
        AND EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = $1 AND l.priority = $4)
    RETURNING id, marked AND (
        current_setting('transaction_isolation') <> 'read committed'
        OR EXISTS (SELECT FROM eventkit_sleeper AS s WHERE s.name = 'task:' || $1 AND s.until > clock_timestamp())
    ) INTO added, asleep;
    IF added IS NULL THEN
        IF EXISTS (
            SELECT FROM eventkit_room($1) AS r
            WHERE r.size >= r.max_size OR r.max_bytes IS NOT NULL OR r.rate IS NOT NULL
        ) OR $4 <> 0 AND EXISTS (SELECT FROM eventkit_queue AS q WHERE q.name = $1 AND q.ordered) THEN
            RETURN NULL;
        END IF;
        IF NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = $1 AND l.priority = $4) THEN
            INSERT INTO eventkit_low_water (queue, priority) VALUES ($1, $4);
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
        PERFORM eventkit_notify_waiters('task', $1);
    END IF;
    RETURN added;
END
$$

-- Add a task of any kind; return its id, or that of the one which holds the key.  Durations in seconds.
CREATE OR REPLACE FUNCTION eventkit_enqueue(
    queue text, payload json, priority integer DEFAULT 0, delay double precision DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, max_attempts integer DEFAULT NULL, expires double precision DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, key text DEFAULT NULL, headers json DEFAULT NULL,
    group_key text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    checked json := eventkit_check_payload($2);
    names json := eventkit_check_headers($10);
    unique_key text := CASE WHEN $9 IS NOT NULL THEN eventkit_check_name('key', $9, 1000) END;
    task_group text := CASE WHEN $11 IS NOT NULL THEN eventkit_check_name('group_key', $11, 1000) END;
    attempts bigint := CASE WHEN $6 IS NOT NULL THEN eventkit_check_count('max_attempts', $6, 1) END;
    now timestamptz := date_trunc('milliseconds', clock_timestamp());
    due timestamptz := coalesce(
        now + eventkit_check_seconds('delay', $4, -3162240000000) * interval '1 ms', date_trunc('milliseconds', $5), now
    );
    ends timestamptz := coalesce(
        now + eventkit_check_seconds('expires', $7, -3162240000000) * interval '1 ms', date_trunc('milliseconds', $8)
    );
    best integer := coalesce($3, 0);
    woken boolean := eventkit_wake('task', eventkit_check_name('queue', $1));
    room record;
    holder record;
    added bigint;
BEGIN
    SELECT r.max_size, r.max_bytes INTO room FROM eventkit_room($1) AS r;
    IF octet_length(checked::text) > room.max_bytes THEN
        RAISE EXCEPTION
            'the payload has % bytes, more than the max_bytes of queue %: %',
            octet_length(checked::text), quote_literal($1), room.max_bytes
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $4 IS NOT NULL AND $5 IS NOT NULL THEN
        RAISE EXCEPTION 'a task is due after delay seconds or at run_at: pass one of them'
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF best <> 0 AND EXISTS (SELECT FROM eventkit_queue AS q WHERE q.name = $1 AND q.ordered) THEN
        RAISE EXCEPTION 'queue % is ordered, so its tasks have no priority: leave it out', quote_literal($1)
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO eventkit_task (
        queue, payload, priority, max_attempts, key, headers, group_key, state, run_at, wake_at, expires_at, enqueued_at
    )
    VALUES (
        $1, checked, best, attempts, unique_key, names, task_group,
        CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
        due,
        eventkit_wakes_at(due, ends, now),
        ends,
        now
    )
    RETURNING id INTO added;
    IF added IS NULL THEN
        SELECT k.task_id AS id, CASE WHEN q.strict_keys THEN coalesce(t.payload, k.payload) END AS payload
        INTO holder
        FROM
            eventkit_key AS k
            LEFT JOIN eventkit_queue AS q ON q.name = k.queue
            LEFT JOIN eventkit_task AS t ON t.id = k.task_id AND t.queue = k.queue AND t.state <> 'done'
        WHERE k.queue = $1 AND k.key = $9;
        IF NOT eventkit_same_json(holder.payload, checked) THEN
            RAISE EXCEPTION
                'key % of queue % belongs to task %, which has another payload: use another key', quote_literal($9), quote_literal($1), holder.id
            USING ERRCODE = 'unique_violation';
        END IF;
        RETURN holder.id;
    END IF;
    PERFORM eventkit_spend_enqueue_token($1);
    IF (CASE WHEN room.max_size IS NOT NULL THEN eventkit_size($1) > room.max_size END) THEN  -- Counted only with a bound.
        RAISE EXCEPTION
            'queue % has reached its max_size: run more workers, or configure a larger max_size', quote_literal($1)
        USING ERRCODE = 'configuration_limit_exceeded';
    END IF;
    INSERT INTO eventkit_low_water (queue, priority, run_at)
    SELECT $1, best, CASE WHEN due < now THEN due ELSE '-infinity' END
    WHERE due < now OR NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = $1 AND l.priority = best);
    RETURN added;
END
$$

COMMENT ON FUNCTION eventkit_enqueue IS
    'Enqueues a task, in this transaction, and returns its id, or that of the task with the key. Delay and expires in seconds.'

CREATE OR REPLACE FUNCTION eventkit_cancel(queue text, id bigint, running boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    name text := eventkit_check_name('queue', $1);
    number bigint := eventkit_check_count('id', $2, 0);
    task record;
BEGIN
    SELECT state = 'leased' AS leased
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
    IF task.leased THEN
        PERFORM eventkit_add_notification('eventkit:cancelled', json_build_object('queue', $1, 'id', $2), NULL);
    END IF;
    RETURN true;
END
$$

COMMENT ON FUNCTION eventkit_cancel IS
    'Cancels a waiting task, or also a running one, whose worker is notified; returns false if there is none.'

-- The numbers of a queue, each counted up to the limit.  Due tasks that were not moved yet are counted apart.  The ready
-- index gives the oldest task of each priority; the recursion skips from one priority to the next.
CREATE OR REPLACE FUNCTION eventkit_counts(queue text, "limit" bigint) RETURNS TABLE (
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

CREATE OR REPLACE FUNCTION eventkit_stats(queue text) RETURNS json
LANGUAGE sql VOLATILE
AS $$
    SELECT json_build_object(
        'scheduled', least(c.scheduled, most), 'ready', least(n.ready, most), 'running', least(c.leased, most),
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
