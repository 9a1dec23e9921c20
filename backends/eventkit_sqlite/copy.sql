-- Copying a database: the rows of each table in the order of their keys, compared as bytes.

-- The key of an existing task is copied with the task.
-- step: ExportKey
SELECT queue, key, task_id, reserved_until
FROM eventkit_key AS k
WHERE
    (queue, key) > (:queue, :key)
    AND NOT EXISTS (SELECT 1 FROM eventkit_task AS t WHERE t.queue = k.queue AND t.key = k.key AND t.state <> 'done')
ORDER BY queue, key
LIMIT :limit

-- name: ExportNumbers
SELECT
    coalesce(max(seq) FILTER (WHERE name = 'eventkit_event'), 0),
    coalesce(max(seq) FILTER (WHERE name = 'eventkit_notification'), 0),
    coalesce(max(seq) FILTER (WHERE name = 'eventkit_task'), 0)
FROM sqlite_sequence

-- name: ImportNumbers
INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq)
SELECT s.rowid, n.name, max(coalesce(s.seq, 0), n.seq)
FROM
    (
        SELECT 'eventkit_event' AS name, :event AS seq
        UNION ALL SELECT 'eventkit_notification', :notification
        UNION ALL SELECT 'eventkit_task', :task
    ) AS n
    LEFT JOIN sqlite_sequence AS s ON s.name = n.name

-- name: ReadCondition
SELECT schema_hash, incomplete
FROM eventkit_identity

-- name: MarkIncomplete
UPDATE eventkit_identity
SET incomplete = :what
