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
    AND id <= greatest(
        CASE WHEN :older_than::bigint IS NULL THEN 0 ELSE coalesce(
            (
                SELECT id - 1 FROM eventkit_notification
                WHERE channel = :channel AND created_at >= :now - :older_than::bigint * interval '1 ms'
                ORDER BY id LIMIT 1
            ),
            9223372036854775807
        ) END,
        CASE WHEN :keep_count::bigint IS NULL THEN 0 ELSE coalesce(
            (SELECT id FROM eventkit_notification WHERE channel = :channel ORDER BY id DESC LIMIT 1 OFFSET :keep_count), 0
        ) END
    )
    AND id <= (SELECT eventkit_settled('notification', ARRAY[:channel]))
