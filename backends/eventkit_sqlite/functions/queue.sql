-- Enqueueing.

-- view: eventkit_do_enqueue (queue, payload, priority, delay, run_at, max_attempts, expires, expires_at, key, headers, group_key)
INSERT INTO eventkit_check_name VALUES ('queue', NEW.queue), ('key', NEW.key), ('key', NEW.group_key);
INSERT INTO eventkit_check_json VALUES ('payload', NEW.payload), ('headers', NEW.headers);
INSERT INTO eventkit_check_number
VALUES
    ('priority', NEW.priority, -2147483648, 2147483647),
    ('max_attempts', NEW.max_attempts, 1, 9223372036854775807),
    ('delay', NEW.delay, -3162240000, 3162240000),
    ('expires', NEW.expires, -3162240000, 3162240000);
SELECT RAISE(ABORT, 'a task is due after delay seconds or at run_at: pass one of them')
WHERE NEW.delay IS NOT NULL AND NEW.run_at IS NOT NULL;
SELECT RAISE(ABORT, 'run_at and expires_at are times such as 2030-01-31 12:00:00+00:00')
FROM (SELECT NEW.run_at AS moment UNION ALL SELECT NEW.expires_at)
WHERE moment NOT GLOB '[0-9][0-9][0-9][0-9]-*' OR moment IS NOT NULL AND julianday(moment) IS NULL;
SELECT RAISE(ABORT, 'the payload has more bytes than the max_bytes of the queue: send a reference, or configure a larger max_bytes')
FROM eventkit_queue
WHERE name = NEW.queue AND length(CAST(NEW.payload AS BLOB)) > max_bytes;
SELECT RAISE(ABORT, 'tasks of an ordered queue have no priority: leave it out')
FROM eventkit_queue
WHERE name = NEW.queue AND ordered AND NEW.priority <> 0;
INSERT INTO eventkit_step_enqueue (queue, payload, key, tasks)
VALUES (NEW.queue, NEW.payload, NEW.key, json_array(json_array(
    NEW.payload || '', NEW.headers || '', CAST(coalesce(NEW.priority, 0) AS INTEGER),
    CAST(NEW.max_attempts AS INTEGER), NEW.key, CAST(round(NEW.delay * 1000) AS INTEGER),
    CAST((julianday(NEW.run_at) - 2440587.5) * 86400000.0 + 0.5 AS INTEGER), CAST(round(NEW.expires * 1000) AS INTEGER),
    CAST((julianday(NEW.expires_at) - 2440587.5) * 86400000.0 + 0.5 AS INTEGER), NEW.group_key
)));

-- Where no task was added, its key is taken.  Two payloads are the same JSON value, in any order of keys.
-- view: eventkit_step_enqueue (queue, payload, key, tasks)
:EnqueueMany;
SELECT RAISE(ABORT, 'the queue has reached its max_size: run more workers, or configure a larger max_size')
FROM eventkit_queue
WHERE changes() AND name = NEW.queue AND max_size IS NOT NULL AND max_size < (:ReadSize);
SELECT RAISE(ABORT, 'the queue has strict_keys, and the key has a task with another payload: use another key, or wait until that task is done')
FROM
    eventkit_queue AS q
    LEFT JOIN eventkit_task AS t ON t.queue = q.name AND t.key = NEW.key AND t.state <> 'done'
    LEFT JOIN eventkit_key AS k ON k.queue = q.name AND k.key = NEW.key
WHERE
    NOT changes() AND q.name = NEW.queue AND q.strict_keys AND coalesce(t.payload, k.payload) IS NOT NULL
    AND EXISTS (
        SELECT 1
        FROM (
            SELECT 1, fullkey, replace(type, 'real', 'integer') AS type, atom FROM json_tree(NEW.payload)
            UNION
            SELECT 2, fullkey, replace(type, 'real', 'integer'), atom FROM json_tree(coalesce(t.payload, k.payload))
        )
        GROUP BY fullkey, type, atom
        HAVING count(*) <> 2
    );
UPDATE eventkit_queue
SET
    enqueue_tokens = min(
        coalesce(enqueue_burst, max(1.0, enqueue_rate)),
        coalesce(
            CASE
                WHEN enqueue_refilled_at <= :now + 1000
                THEN enqueue_tokens + max(0, :now - enqueue_refilled_at) * enqueue_rate / 1000
            END,
            enqueue_burst, max(1.0, enqueue_rate)
        )
    ) - 1,
    enqueue_refilled_at = :now
WHERE changes() AND name = NEW.queue AND enqueue_rate IS NOT NULL;
SELECT RAISE(ABORT, 'the queue has reached its enqueue_rate: try again later, or configure a larger enqueue_rate')
FROM eventkit_queue
WHERE changes() AND name = NEW.queue AND enqueue_rate IS NOT NULL AND enqueue_tokens < -1e-6;

-- Claiming.
--
-- One statement of the caller has one time, so that all steps of a claim agree on which tasks are due.

-- view: eventkit_do_claim (queue, worker, batch, lease)
INSERT INTO eventkit_check_name VALUES ('queue', NEW.queue), ('worker', NEW.worker);
INSERT INTO eventkit_check_number
VALUES ('batch', NEW.batch, 1, 9223372036854775807), ('lease', NEW.lease, 0, 3162240000);
UPDATE eventkit_queue SET refilled_at = :now WHERE name = NEW.queue AND refilled_at > :now;
INSERT INTO eventkit_step_promote (queue, "limit") VALUES (NEW.queue, max(1000, CAST(coalesce(NEW.batch, 1) AS INTEGER)));
INSERT INTO eventkit_step_lease (queue, worker, token, lease, tokens, with_groups, "limit")
SELECT
    NEW.queue, NEW.worker, random() & 9223372036854775807, lease, tokens, with_groups,
    CASE
        WHEN paused THEN 0
        ELSE min(
            batch, coalesce(max_running - running, batch), coalesce(room, batch),
            coalesce(CAST(tokens + 1e-6 AS INTEGER), batch)
        )
    END
FROM (
    SELECT
        coalesce(CAST(round(NEW.lease * 1000) AS INTEGER), lease) AS lease,
        CAST(coalesce(NEW.batch, 1) AS INTEGER) AS batch,
        paused, max_running, running, room, with_groups,
        CASE WHEN rate IS NOT NULL THEN min(
            coalesce(burst, max(1.0, rate)),
            coalesce(tokens + max(0, now - refilled_at) * rate / 1000, burst, max(1.0, rate))
        ) END AS tokens
    FROM (:ReadGate)
);

-- view: eventkit_do_sweep (queue)
INSERT INTO eventkit_check_name VALUES ('queue', NEW.queue);
INSERT INTO eventkit_step_promote (queue, "limit") VALUES (NEW.queue, -1);

-- Which of the due tasks die is found before they are moved.
-- view: eventkit_step_promote (queue, "limit")
INSERT INTO eventkit_step_move (queue, "limit", due, ids)
SELECT NEW.queue, NEW."limit", count(*), json_group_array(id) FILTER (WHERE state = 'dead')
FROM (
    SELECT id, state
    FROM eventkit_task_now
    WHERE queue = NEW.queue AND stored_state IN ('scheduled', 'leased', 'ready') AND wake_at <= :now
    ORDER BY priority DESC, run_at, id
    LIMIT NEW."limit"
);

-- view: eventkit_step_move (queue, "limit", due, ids) WHEN NEW.due > 0
:UpdateDue;
INSERT INTO eventkit_step_settle_dead VALUES (NEW.ids);

-- In groups, the first tasks that may not be leased are set aside, so that those after them are drawn.
-- view: eventkit_step_lease (queue, worker, token, lease, tokens, with_groups, "limit") WHEN NEW."limit" > 0
INSERT INTO eventkit_step_hold (queue, "limit") SELECT NEW.queue, 1000 WHERE NEW.with_groups;
INSERT INTO eventkit_step_lease_in_groups (queue, worker, token, lease, "limit")
SELECT NEW.queue, NEW.worker, NEW.token, NEW.lease, NEW."limit" WHERE NEW.with_groups;
INSERT INTO eventkit_step_lease_freely (queue, worker, token, lease, "limit")
SELECT NEW.queue, NEW.worker, NEW.token, NEW.lease, NEW."limit" WHERE NOT NEW.with_groups;
UPDATE eventkit_queue
SET
    tokens = NEW.tokens - (
        SELECT count(*) FROM eventkit_task
        WHERE queue = NEW.queue AND state = 'leased' AND wake_at = :now + NEW.lease AND token = NEW.token
    ),
    refilled_at = :now
WHERE name = NEW.queue AND rate IS NOT NULL;
INSERT INTO eventkit_step_die (id, token, reason, error)
SELECT id, token, 'poison', 'the payload is not JSON'
FROM eventkit_task
WHERE queue = NEW.queue AND state = 'leased' AND wake_at = :now + NEW.lease AND token = NEW.token AND NOT json_valid(payload);

-- view: eventkit_step_lease_freely (queue, worker, token, lease, "limit")
:Lease;

-- view: eventkit_step_lease_in_groups (queue, worker, token, lease, "limit")
:LeaseInGroups;

-- view: eventkit_step_hold (queue, "limit")
:Block;
:HoldBack;
:PutOff;

-- Skips from one queue to the next by the index.
CREATE VIEW eventkit_claimed (
    id, payload, token, queue, worker, key, headers, priority, attempt, max_attempts, run_ms, enqueued_ms, expires_ms,
    lease_expires_ms, lease_ms, lapsed, group_key
) AS
WITH RECURSIVE leasing (name) AS (
    SELECT min(queue) FROM eventkit_task WHERE wake_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(t.queue) FROM eventkit_task AS t WHERE t.wake_at IS NOT NULL AND t.queue > l.name)
    FROM leasing AS l
    WHERE l.name IS NOT NULL
)
SELECT
    t.id, t.payload, CAST(t.token AS TEXT), t.queue, t.worker, t.key, coalesce(t.headers, '{}'), t.priority,
    t.attempt, coalesce(t.max_attempts, q.max_attempts, 3), t.run_at, t.enqueued_at, t.expires_at, t.wake_at,
    t.wake_at - t.claimed_at, t.lapsed, nullif(t.group_key, '')
FROM
    leasing AS l
    CROSS JOIN eventkit_task AS t ON t.queue = l.name AND t.state = 'leased' AND t.wake_at > :now
    LEFT JOIN eventkit_queue AS q ON q.name = t.queue
ORDER BY t.priority DESC, t.run_at, t.id

-- Ending a claim.

-- view: eventkit_check_held (id, token)
SELECT RAISE(
    ABORT,
    'the lease of the task was lost, or the task was finished: roll back what was done for it, and claim with a longer lease'
)
WHERE NOT EXISTS (
    SELECT 1 FROM eventkit_task WHERE id = NEW.id AND token = NEW.token AND state = 'leased' AND wake_at > :now
);

-- view: eventkit_do_ack (id, token, result)
INSERT INTO eventkit_check_json VALUES ('result', NEW.result);
INSERT INTO eventkit_check_held VALUES (NEW.id, NEW.token);
INSERT INTO eventkit_step_finish (ids, "limit", held)
VALUES (
    json_array(CAST(NEW.id AS INTEGER)), 2,
    json_array(json_array(CAST(NEW.id AS INTEGER), CAST(NEW.token AS INTEGER), NEW.result || ''))
);
INSERT INTO eventkit_step_save_result (id, queue, value)
SELECT CAST(NEW.id AS INTEGER), queue, NEW.result FROM eventkit_task WHERE id = NEW.id AND NEW.result IS NOT NULL;
DELETE FROM eventkit_task
WHERE id = NEW.id AND (SELECT q.keep_done FROM eventkit_queue AS q WHERE q.name = eventkit_task.queue) IS NULL;

-- view: eventkit_step_finish (ids, "limit", held)
:MarkDone;
:ReserveKeys;
:ForgetKeys;
:ForgetDone;

-- view: eventkit_step_save_result (id, queue, value, ttl)
:SaveTaskResult;

-- The delay is drawn once: by the policy of the queue, if the caller gives none.
-- view: eventkit_do_retry (id, token, delay, error)
INSERT INTO eventkit_check_number VALUES ('delay', NEW.delay, 0, 3162240000);
INSERT INTO eventkit_check_held VALUES (NEW.id, NEW.token);
INSERT INTO eventkit_step_die (id, token, reason, error)
SELECT t.id, t.token, 'exhausted', NEW.error
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
WHERE t.id = NEW.id AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3);
INSERT INTO eventkit_step_postpone (id, token, delay, error)
SELECT
    id, token,
    coalesce(CAST(round(NEW.delay * 1000) AS INTEGER), CAST(round(1000 * min(
        coalesce(json_extract(retry, '$.cap'), 300.0),
        CASE coalesce(json_extract(retry, '$.type'), 'exponential')
            WHEN 'exponential' THEN coalesce(json_extract(retry, '$.base'), 1.0) * (1 << min(attempt - 1, 60))
            WHEN 'linear' THEN json_extract(retry, '$.base') * attempt
            WHEN 'fixed' THEN json_extract(retry, '$.base')
            ELSE json_extract(retry, '$.seconds[' || (min(attempt, json_array_length(retry, '$.seconds')) - 1) || ']')
        END * (1 + coalesce(json_extract(retry, '$.jitter'), 0.3) * (random() / 9223372036854775808.0))
    )) AS INTEGER)),
    NEW.error
FROM (
    SELECT t.id, t.token, t.attempt, q.retry
    FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
    WHERE t.id = NEW.id AND t.state = 'leased'
);

-- view: eventkit_step_postpone (id, token, delay, error, code)
:Postpone;

-- view: eventkit_do_fail (id, token, error)
SELECT RAISE(ABORT, 'error is a text, not NULL') WHERE NEW.error IS NULL;
INSERT INTO eventkit_check_held VALUES (NEW.id, NEW.token);
INSERT INTO eventkit_step_die (id, token, reason, error) VALUES (NEW.id, NEW.token, 'failed', NEW.error);

-- view: eventkit_step_die (id, token, reason, error, code)
:MarkDead;
INSERT INTO eventkit_step_settle_dead VALUES (json_array(NEW.id));

-- view: eventkit_step_settle_dead (ids)
:CopyDead;

-- view: eventkit_do_extend (id, token, seconds)
INSERT INTO eventkit_check_number VALUES ('seconds', NEW.seconds, 0, 3162240000);
INSERT INTO eventkit_check_held VALUES (NEW.id, NEW.token);
UPDATE eventkit_task SET wake_at = :now + CAST(round(NEW.seconds * 1000) AS INTEGER) WHERE id = NEW.id;
