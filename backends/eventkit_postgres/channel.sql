-- Channels.  As with streams, readers ignore rows above the settled id.

-- name: Notify
SELECT eventkit_add_notification(:channel, :payload::json, :headers::json)

-- name: ReadNotifications
SELECT id, channel, payload, headers, created_ms
FROM eventkit_notifications_after(:channels::text[], :after, :limit)

-- name: FindNow
SELECT eventkit_latest_notification(:channels::text[])

-- name: NotificationsAhead
SELECT ready, due, now
FROM eventkit_notifications_ahead(:channels::text[], :after, :created)

-- name: FindNotification
SELECT coalesce(n.id, 0), coalesce(eventkit_ms(n.created_at), 0)
FROM (
    SELECT max((
        SELECT m.id FROM eventkit_notification AS m
        WHERE m.channel = c.name AND m.id <= :last AND eventkit_ms(m.created_at) <= :created
        ORDER BY m.id DESC LIMIT 1
    )) AS id
    FROM unnest(:channels::text[]) AS c (name)
) AS found LEFT JOIN eventkit_notification AS n ON n.id = found.id

-- As with events, the rows to delete are a prefix up to the settled id: later rows are unread.
-- name: FindPrunableNotifications
SELECT max(id)
FROM eventkit_notification
WHERE
    channel = :channel
    AND id <= greatest(:notifications_too_old, :notifications_too_many)
    AND id <= (SELECT eventkit_settled('notification', ARRAY[:channel]))

-- part: channel_head
coalesce(
    (
        SELECT max(n.id) FROM eventkit_notification AS n
        WHERE n.channel = c.name AND n.id <= (SELECT eventkit_settled('notification', ARRAY[c.name]))
    ),
    0
)
