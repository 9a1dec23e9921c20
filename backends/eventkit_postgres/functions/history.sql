-- The history of tasks.  The triggers that call these functions are created when the first queue keeps its history
-- and dropped when the last one stops, because they slow down every other change of tasks.

-- Whether the triggers are needed after a queue's setting has changed, and the obstacle for a role that may not change
-- them.  The caller excludes other callers from then on.  Before it creates or drops them it locks the table, before
-- any row of it, to avoid a deadlock.
CREATE OR REPLACE FUNCTION eventkit_hold_history(queue text, history boolean)
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

-- Publish the events of tasks, an object for each; NULL for none.
CREATE OR REPLACE FUNCTION eventkit_record(steps json[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    woken boolean;
BEGIN
    IF $1 IS NOT NULL THEN
        woken := eventkit_wake('event', 'eventkit.tasks');
        INSERT INTO eventkit_event (id, topic, key, payload)
        SELECT nextval('eventkit_event_id_seq'), 'eventkit.tasks', (step ->> 'queue') || ':' || (step ->> 'id'), step
        FROM unnest($1) AS step;
    END IF;
    RETURN true;
END
$$

CREATE OR REPLACE FUNCTION eventkit_record_enqueued() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    recorded boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM became AS t JOIN eventkit_queue AS q ON q.name = t.queue WHERE q.history) THEN
        RETURN NULL;
    END IF;
    SELECT eventkit_record(array_agg(row_to_json(s)))
    INTO recorded
    FROM (
        SELECT
            t.queue, t.id, 'enqueued' AS kind, t.attempt, NULL::text AS worker, t.priority, eventkit_ms(t.run_at) AS run_at,
            NULL::bigint AS wait_ms, NULL::bigint AS run_ms, NULL::text AS reason, NULL::text AS error
        FROM became AS t JOIN eventkit_queue AS q ON q.name = t.queue
        WHERE q.history
        ORDER BY t.id
    ) AS s;
    RETURN NULL;
END
$$

-- A death that ends an attempt is two events.  Promotion by the clock or by the order of a group is none.
CREATE OR REPLACE FUNCTION eventkit_record_moved() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    moment timestamptz := date_trunc('milliseconds', clock_timestamp());
    recorded boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM became AS t JOIN eventkit_queue AS q ON q.name = t.queue WHERE q.history) THEN
        RETURN NULL;
    END IF;
    SELECT eventkit_record(array_agg(row_to_json(s)))
    INTO recorded
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
    RETURN NULL;
END
$$

-- A claimed task that is deleted with its token was finished, unless its whole queue was abandoned.
CREATE OR REPLACE FUNCTION eventkit_record_gone() RETURNS trigger
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    moment timestamptz := date_trunc('milliseconds', clock_timestamp());
    abandoned text := current_setting('eventkit.abandoned', true);
    recorded boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM was AS t JOIN eventkit_queue AS q ON q.name = t.queue WHERE q.history) THEN
        RETURN NULL;
    END IF;
    SELECT eventkit_record(array_agg(row_to_json(s)))
    INTO recorded
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
    RETURN NULL;
END
$$
