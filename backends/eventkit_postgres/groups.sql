-- Groups of tasks: their settings.  Claims are in functions/groups.sql.

-- step: DropGroupRates
DELETE FROM eventkit_group_rate WHERE queue = :queue

-- step: DropFullGroupRates
DELETE FROM eventkit_group_rate
WHERE (queue, group_key) IN (
    SELECT queue, group_key FROM eventkit_group_rate
    WHERE until <= :now
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING 1

-- step: ReadOrdered
SELECT 1 FROM eventkit_queue WHERE name = :queue AND ordered

-- After a change of the settings: the waiting tasks get groups and turns, and none is held.
-- step: Regroup
SELECT eventkit_regroup(:queue)

-- Triggers that exist while a queue is fair, or limits its groups.

-- step: HoldSharing
SELECT needed, there, obstacle
FROM eventkit_hold_sharing(:queue, :shared)

-- step: GiveTurns
CREATE TRIGGER eventkit_task_joined BEFORE INSERT ON eventkit_task
FOR EACH ROW WHEN (NEW.turn IS NULL AND NEW.state IN ('ready', 'scheduled')) EXECUTE FUNCTION eventkit_join_group()

-- step: Pace
CREATE TRIGGER eventkit_task_paced BEFORE UPDATE OF state ON eventkit_task
FOR EACH ROW WHEN (
    NEW.group_key IS NOT NULL AND NEW.state <> OLD.state
    AND (
        NEW.state = 'ready' AND NEW.turn IS NOT NULL
        OR OLD.state = 'ready' AND NEW.state = 'scheduled' AND NEW.held IS NULL AND NEW.wake_at > '9990-01-01 00:00+00'
    )
)
EXECUTE FUNCTION eventkit_pace()

-- step: ForgetTurns
DROP TRIGGER eventkit_task_joined ON eventkit_task

-- step: ForgetPace
DROP TRIGGER eventkit_task_paced ON eventkit_task
