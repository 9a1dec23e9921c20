-- Groups of tasks: their order, turns, limits and rates.
--
-- A ready task of a group is a ticket: a claim that draws it leases what the group allows, in an ordered queue the first
-- task of the group.  A ticket of a group that allows none is held: invisible to claims, until one of those that it waits
-- for, which are marked (blocks), ends and makes the next one a marked ticket (eventkit_task_left, eventkit_task_ended).  A
-- group without tokens has its tickets put off, each to the moment of a token of its own.

-- part: is_fair
    (SELECT fair FROM eventkit_queue WHERE name = :queue)

-- part: drawn
    SELECT id, group_key, priority, place FROM (
        SELECT id, group_key, priority, run_at AS place FROM eventkit_task
        WHERE queue = :queue AND state = 'ready' AND (expires_at IS NULL OR expires_at > :now)
        ORDER BY priority DESC, run_at, id
        LIMIT iif(:is_fair, 0, :limit)
    )
    UNION ALL
    SELECT id, group_key, priority, place FROM (
        SELECT id, group_key, priority, turn AS place FROM eventkit_task
        WHERE queue = :queue AND state = 'ready' AND turn IS NOT NULL AND (expires_at IS NULL OR expires_at > :now)
        ORDER BY priority DESC, turn, id
        LIMIT iif(:is_fair, :limit, 0)
    )

-- part: with_groups
coalesce(ordered OR group_max_running IS NOT NULL OR group_rate IS NOT NULL, 0)

-- part: in_order
(coalesce(q.ordered, 0) AND d.group_key <> '')

-- part: busy
EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND group_key = d.group_key AND state = 'leased')

-- part: stopped
(q.on_dead = 'stop' AND EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND group_key = d.group_key AND state = 'dead'))

-- The sign keeps SQLite from the index of all running tasks.
-- part: group_running
(
    SELECT count(*) FROM eventkit_task
    WHERE queue = :queue AND group_key = d.group_key AND state = 'leased' AND +wake_at > :now
)

-- part: group_tokens
coalesce(
    (
        SELECT min(max(1.0, q.group_rate), tokens + max(0, :now - refilled_at) * q.group_rate / 1000)
        FROM eventkit_group_rate
        WHERE queue = :queue AND group_key = d.group_key
    ),
    max(1.0, q.group_rate)
)

-- The ticket itself is ready.
-- part: first
min(
    (SELECT min(id) FROM eventkit_task WHERE queue = :queue AND group_key = d.group_key AND state = 'ready'),
    coalesce((SELECT min(id) FROM eventkit_task WHERE queue = :queue AND group_key = d.group_key AND state = 'scheduled'), d.id)
)

-- part: lease_them
    state = 'leased', attempt = attempt + 1, worker = :worker, token = :token,
    claimed_at = :now, wake_at = :now + :lease, held = NULL

-- Without limits, all tickets of a group stand for its first task.
-- step: LeaseInOrder
UPDATE eventkit_task
SET :lease_them
WHERE
    id IN (
        SELECT iif(:in_order, :first, d.id)
        FROM (:drawn) AS d JOIN eventkit_queue AS q ON q.name = :queue
        WHERE NOT :in_order OR NOT :busy AND :stopped IS NOT 1
    )
    AND (state = 'ready' OR held IS NOT NULL) AND (expires_at IS NULL OR expires_at > :now)
RETURNING :leased

-- step: LeaseInGroups
UPDATE eventkit_task
SET :lease_them
WHERE
    id IN (
        SELECT iif(:in_order, :first, d.id)
        FROM
            (
                SELECT *, row_number() OVER (PARTITION BY group_key ORDER BY priority DESC, place, id) AS number
                FROM (:drawn)
            ) AS d
            JOIN eventkit_queue AS q ON q.name = :queue
        WHERE
            d.group_key IS NULL
            OR (NOT :in_order OR d.number = 1 AND NOT :busy AND :stopped IS NOT 1)
            AND (q.group_max_running IS NULL OR d.number <= q.group_max_running - :group_running)
            AND (q.group_rate IS NULL OR d.number <= 1e-6 + :group_tokens)
    )
    AND (state = 'ready' OR held IS NOT NULL) AND (expires_at IS NULL OR expires_at > :now)
RETURNING :leased

-- Marks what the first tasks wait for: those that run, one that is dead, or the first one of the group.
-- step: Block
UPDATE eventkit_task
SET blocks = 1
WHERE
    blocks IS NULL
    AND id IN (
        SELECT b.id
        FROM
            (SELECT DISTINCT group_key FROM (:drawn)) AS d CROSS JOIN eventkit_task AS b
        WHERE b.queue = :queue AND b.group_key = d.group_key AND b.state = 'leased'
        UNION ALL
        SELECT (SELECT min(id) FROM eventkit_task WHERE queue = :queue AND group_key = d.group_key AND state = s.value)
        FROM (SELECT DISTINCT group_key FROM (:drawn)) AS d CROSS JOIN json_each('["dead", "scheduled"]') AS s
    )

-- step: HoldBack
UPDATE eventkit_task
SET state = 'scheduled', held = 1, wake_at = coalesce(expires_at, 253402300799999)
WHERE id IN (
    SELECT d.id
    FROM (:drawn) AS d JOIN eventkit_queue AS q ON q.name = :queue
    WHERE
        :in_order
        AND (
            :busy OR :stopped
            OR EXISTS (
                SELECT 1 FROM eventkit_task
                WHERE
                    id = (SELECT min(id) FROM eventkit_task WHERE queue = :queue AND group_key = d.group_key AND state = 'scheduled')
                    AND held IS NULL AND id < d.id
            )
        )
        OR d.group_key IS NOT NULL AND q.group_max_running <= :group_running
)
RETURNING id

-- eventkit_task_paced finds the moment.
-- step: PutOff
UPDATE eventkit_task
SET state = 'scheduled', wake_at = 253402300799999
WHERE id IN (
    SELECT d.id
    FROM
        (:drawn) AS d
        JOIN eventkit_queue AS q ON q.name = :queue
    WHERE :group_tokens < 1 - 1e-6
)
RETURNING id

-- After a change of the settings: the waiting tasks get groups and turns, and none is held.
-- step: Regroup
UPDATE eventkit_task
SET
    group_key = n.group_key, turn = n.turn, held = NULL,
    state = iif(eventkit_task.state = 'scheduled' AND run_at <= :now, 'ready', eventkit_task.state),
    wake_at = iif(eventkit_task.state = 'scheduled' AND run_at <= :now, expires_at, wake_at)
FROM (
    SELECT
        t.id,
        iif(q.fair OR q.group_max_running IS NOT NULL OR q.group_rate IS NOT NULL, coalesce(t.group_key, ''), t.group_key) AS group_key,
        iif(
            q.fair,
            :now * 1000000 + CAST(
                row_number() OVER (PARTITION BY t.priority, coalesce(t.group_key, '') ORDER BY t.run_at, t.id) * 10000
                / coalesce((SELECT value FROM json_each(q.weights) WHERE key = t.group_key), 1.0)
            AS INTEGER),
            NULL
        ) AS turn
    FROM eventkit_task AS t JOIN eventkit_queue AS q ON q.name = t.queue
    WHERE t.queue = :queue AND t.state IN ('ready', 'scheduled', 'leased')
) AS n
WHERE eventkit_task.id = n.id AND (eventkit_task.state <> 'leased' OR eventkit_task.group_key IS NOT n.group_key)

-- step: DropGroupRates
DELETE FROM eventkit_group_rate WHERE queue = :queue

-- step: DropFullGroupRates
DELETE FROM eventkit_group_rate
WHERE (queue, group_key) IN (SELECT queue, group_key FROM eventkit_group_rate WHERE until <= :now LIMIT :limit)
RETURNING 1

-- step: ReadOrdered
SELECT 1 FROM eventkit_queue WHERE name = :queue AND ordered

-- Triggers that exist while a queue is fair, or limits its groups.

-- step: HoldSharing
SELECT
    :shared OR EXISTS (
        SELECT 1 FROM eventkit_queue
        WHERE name <> :queue AND (fair OR group_max_running IS NOT NULL OR group_rate IS NOT NULL)
    ),
    EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = 'eventkit_task_joined'),
    NULL

-- A task without a group belongs to the group ''.  Its turn is one step (a hundred thousandth of a second, divided by the
-- weight of the group) after the group's last one, and not before that of the first ready task; without one, the time,
-- in nanoseconds, which exceeds all turns before.
-- step: GiveTurns
CREATE TRIGGER eventkit_task_joined AFTER INSERT ON eventkit_task
WHEN
    NEW.turn IS NULL AND NEW.state IN ('ready', 'scheduled')
    AND EXISTS (
        SELECT 1 FROM eventkit_queue
        WHERE name = NEW.queue AND (fair OR group_max_running IS NOT NULL OR group_rate IS NOT NULL)
    )
BEGIN
    UPDATE eventkit_task
    SET
        group_key = coalesce(group_key, ''),
        turn = (
            SELECT iif(
                q.fair,
                max(
                    coalesce(
                        (
                            SELECT turn FROM eventkit_task
                            WHERE queue = NEW.queue AND state = 'ready' AND priority = NEW.priority AND turn IS NOT NULL
                            ORDER BY turn LIMIT 1
                        ),
                        :now * 1000000
                    ),
                    coalesce(
                        (
                            SELECT max(turn) FROM eventkit_task
                            WHERE
                                queue = NEW.queue AND group_key = coalesce(NEW.group_key, '')
                                AND priority = NEW.priority AND turn IS NOT NULL
                        )
                        + CAST(10000 / coalesce((SELECT value FROM json_each(q.weights) WHERE key = NEW.group_key), 1.0) AS INTEGER),
                        0
                    )
                ),
                NULL
            )
            FROM eventkit_queue AS q
            WHERE q.name = NEW.queue
        )
    WHERE id = NEW.id;
END

-- A task that becomes ready again has waited for itself or for its group: its turn is not before that of the first ready
-- task.  A lease takes a token of its group; a task that is put off reserves one, and wakes at its moment.
-- step: Pace
CREATE TRIGGER eventkit_task_paced AFTER UPDATE OF state ON eventkit_task
WHEN
    NEW.group_key IS NOT NULL AND NEW.state <> OLD.state
    AND (
        NEW.state = 'ready' AND NEW.turn IS NOT NULL
        OR (NEW.state = 'leased' OR OLD.state = 'ready' AND NEW.state = 'scheduled' AND NEW.held IS NULL)
        AND (SELECT group_rate FROM eventkit_queue WHERE name = NEW.queue) IS NOT NULL
    )
BEGIN
    UPDATE eventkit_task
    SET turn = max(turn, (
        SELECT turn FROM eventkit_task
        WHERE queue = NEW.queue AND state = 'ready' AND priority = NEW.priority AND turn IS NOT NULL AND id <> NEW.id
        ORDER BY turn LIMIT 1
    ))
    WHERE id = NEW.id AND NEW.state = 'ready' AND EXISTS (
        SELECT 1 FROM eventkit_task
        WHERE queue = NEW.queue AND state = 'ready' AND priority = NEW.priority AND turn IS NOT NULL AND id <> NEW.id
    );
    INSERT INTO eventkit_group_rate (queue, group_key, tokens, reserved, refilled_at, until)
    SELECT name, NEW.group_key, max(1.0, group_rate), max(1.0, group_rate), :now, :now
    FROM eventkit_queue
    WHERE name = NEW.queue AND NEW.state <> 'ready'
    ON CONFLICT (queue, group_key) DO NOTHING;
    UPDATE eventkit_group_rate
    SET
        tokens = min(b.depth, tokens + max(0, :now - refilled_at) * b.rate / 1000) - (NEW.state = 'leased'),
        reserved = min(
            b.depth, tokens + max(0, :now - refilled_at) * b.rate / 1000,
            reserved + max(0, :now - refilled_at) * b.rate / 1000
        ) - (NEW.state = 'scheduled'),
        refilled_at = :now
    FROM (SELECT group_rate AS rate, max(1.0, group_rate) AS depth FROM eventkit_queue WHERE name = NEW.queue) AS b
    WHERE queue = NEW.queue AND group_key = NEW.group_key AND NEW.state <> 'ready';
    UPDATE eventkit_group_rate
    SET until = refilled_at + CAST((b.depth - min(tokens, reserved)) * 1000 / b.rate AS INTEGER) + 1
    FROM (SELECT group_rate AS rate, max(1.0, group_rate) AS depth FROM eventkit_queue WHERE name = NEW.queue) AS b
    WHERE queue = NEW.queue AND group_key = NEW.group_key AND NEW.state <> 'ready';
    UPDATE eventkit_task
    SET wake_at = min(
        coalesce(expires_at, wake_at),
        (
            SELECT :now + CAST(max(0, -r.reserved) * 1000 / q.group_rate AS INTEGER) + 1
            FROM eventkit_group_rate AS r JOIN eventkit_queue AS q ON q.name = r.queue
            WHERE r.queue = NEW.queue AND r.group_key = NEW.group_key
        )
    )
    WHERE id = NEW.id AND NEW.state = 'scheduled';
END

-- step: ForgetTurns
DROP TRIGGER eventkit_task_joined

-- step: ForgetPace
DROP TRIGGER eventkit_task_paced
