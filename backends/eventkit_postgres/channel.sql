-- Channels.  As with streams, what lies above the settled number is nobody's yet.

-- name: Notify
SELECT eventkit_tell(:channel, :payload::json, :headers::json)

-- name: ReadNotifications
SELECT id, channel, payload, headers, created_ms
FROM eventkit_notifications_after(:channels::text[], :after, :limit)

-- name: FindNow
SELECT eventkit_latest_notification(:channels::text[])

-- name: NotificationsAhead
SELECT ready, due, now
FROM eventkit_notifications_ahead(:channels::text[], :after)

-- name: PruneNotifications
DELETE FROM eventkit_notification
WHERE
    channel = :channel
    AND (
        created_at < :now - :older_than::bigint * interval '1 ms'
        OR id <= (
            SELECT id FROM eventkit_notification
            WHERE channel = :channel AND :max_keep::bigint IS NOT NULL
            ORDER BY id DESC LIMIT 1 OFFSET :max_keep
        )
    )
RETURNING id

-- name: AdvanceNotifications
UPDATE eventkit_notification
SET created_at = created_at - :milliseconds::bigint * interval '1 ms'
