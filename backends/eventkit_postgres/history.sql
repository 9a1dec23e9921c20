-- The history of tasks.  docs/contract.md defines the events and their fields.  The triggers call functions of the
-- schema: all rows of a statement become events at once.

-- name: HoldHistory
SELECT needed, there, obstacle
FROM eventkit_hold_history(:queue, :history)

-- name: Abandon
SELECT set_config('eventkit.abandoned', :queue, true)

-- name: RecordEnqueued
CREATE TRIGGER eventkit_task_enqueued AFTER INSERT ON eventkit_task
REFERENCING NEW TABLE AS became
FOR EACH STATEMENT EXECUTE FUNCTION eventkit_record_enqueued()

-- name: RecordMoved
CREATE TRIGGER eventkit_task_moved AFTER UPDATE ON eventkit_task
REFERENCING OLD TABLE AS was NEW TABLE AS became
FOR EACH STATEMENT EXECUTE FUNCTION eventkit_record_moved()

-- name: RecordGone
CREATE TRIGGER eventkit_task_gone AFTER DELETE ON eventkit_task
REFERENCING OLD TABLE AS was
FOR EACH STATEMENT EXECUTE FUNCTION eventkit_record_gone()

-- name: ForgetEnqueued
DROP TRIGGER eventkit_task_enqueued ON eventkit_task

-- name: ForgetMoved
DROP TRIGGER eventkit_task_moved ON eventkit_task

-- name: ForgetGone
DROP TRIGGER eventkit_task_gone ON eventkit_task
