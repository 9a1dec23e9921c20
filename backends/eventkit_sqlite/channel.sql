-- Channels.  As with streams, ids are committed in order, so whatever is visible is settled.

-- name: Notify
INSERT INTO eventkit_notification (channel, payload, headers)
VALUES (:channel, :payload, :headers)
RETURNING id

-- name: ReadNotifications
SELECT id, channel, payload, headers, created_at
FROM eventkit_notification
WHERE channel IN (SELECT value FROM json_each(:channels)) AND id > :after
ORDER BY id
LIMIT :limit

-- Of whichever channel: all of them draw from one sequence.
-- name: FindNow
SELECT coalesce(max(seq), 0)
FROM sqlite_sequence
WHERE name = 'eventkit_notification'

-- name: NotificationsAhead
SELECT EXISTS (
    SELECT 1 FROM eventkit_notification
    WHERE channel IN (SELECT value FROM json_each(:channels)) AND id > :after
)

-- name: PruneNotifications
DELETE FROM eventkit_notification
WHERE
    channel = :channel
    AND (
        created_at < :now - :older_than
        OR id <= CASE WHEN :max_keep IS NOT NULL THEN (
            SELECT id FROM eventkit_notification
            WHERE channel = :channel
            ORDER BY id DESC LIMIT 1 OFFSET :max_keep
        ) END
    )
RETURNING id

-- name: AdvanceNotifications
UPDATE eventkit_notification
SET created_at = created_at - :milliseconds
