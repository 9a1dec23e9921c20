-- The history of tasks.  docs/contract.md defines the events and their fields.  The triggers call functions of the
-- schema: all rows of a statement become events at once.

-- step: HoldHistory
SELECT needed, there, obstacle
FROM eventkit_hold_history(:queue, :history)

-- step: Abandon
SELECT set_config('eventkit.abandoned', :queue, true)

-- step: RecordEnqueued
CREATE TRIGGER eventkit_task_enqueued AFTER INSERT ON eventkit_task
REFERENCING NEW TABLE AS became
FOR EACH STATEMENT EXECUTE FUNCTION eventkit_record_enqueued()

-- step: RecordMoved
CREATE TRIGGER eventkit_task_moved AFTER UPDATE ON eventkit_task
REFERENCING OLD TABLE AS was NEW TABLE AS became
FOR EACH STATEMENT EXECUTE FUNCTION eventkit_record_moved()

-- step: RecordGone
CREATE TRIGGER eventkit_task_gone AFTER DELETE ON eventkit_task
REFERENCING OLD TABLE AS was
FOR EACH STATEMENT EXECUTE FUNCTION eventkit_record_gone()

-- step: ForgetEnqueued
DROP TRIGGER eventkit_task_enqueued ON eventkit_task

-- step: ForgetMoved
DROP TRIGGER eventkit_task_moved ON eventkit_task

-- step: ForgetGone
DROP TRIGGER eventkit_task_gone ON eventkit_task
