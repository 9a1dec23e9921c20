-- Channels.  As with streams, ids are committed in order, so all visible notifications are final.

-- name: Notify
INSERT INTO eventkit_notification (channel, payload, headers)
VALUES (:channel, :payload, :headers)
RETURNING id

-- name: ReadNotifications
SELECT id, channel, CAST(payload AS BLOB), CAST(headers AS BLOB), created_at
FROM eventkit_notification
WHERE channel IN (SELECT value FROM json_each(:channels)) AND id > :after
ORDER BY id
LIMIT :limit

-- Covers all channels, because they share one sequence.
-- name: FindNow
SELECT coalesce(max(seq), 0)
FROM sqlite_sequence
WHERE name = 'eventkit_notification'

-- name: NotificationsAhead
SELECT
    EXISTS (
        SELECT 1 FROM eventkit_notification
        WHERE channel IN (SELECT value FROM json_each(:channels)) AND id > :after
    )
    OR (:created > 0 AND NOT EXISTS (SELECT 1 FROM eventkit_notification WHERE id = :after AND created_at <= :created))

-- name: FindNotification
SELECT coalesce(n.id, 0), coalesce(n.created_at, 0)
FROM (
    SELECT max((
        SELECT m.id FROM eventkit_notification AS m
        WHERE m.channel = c.value AND m.id <= :last AND m.created_at <= :created
        ORDER BY m.id DESC LIMIT 1
    )) AS id
    FROM json_each(:channels) AS c
) AS found LEFT JOIN eventkit_notification AS n ON n.id = found.id

-- As with events, the rows to delete are a prefix.
-- name: FindPrunableNotifications
SELECT max(id)
FROM eventkit_notification
WHERE
    channel = :channel
    AND id <= max(:notifications_too_old, :notifications_too_many)

-- part: channel_head
coalesce((SELECT max(n.id) FROM eventkit_notification AS n WHERE n.channel = c.name), 0)
