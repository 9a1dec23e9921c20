-- Retention settings.

-- name: ConfigureStream
INSERT INTO eventkit_topic (name, retain, max_keep, keep_unconsumed)
VALUES (:topic, :retain, :max_keep, :keep_unconsumed)
ON CONFLICT (name) DO UPDATE
SET
    retain = iif('retain' IN (SELECT value FROM json_each(:given)), excluded.retain, retain),
    max_keep = iif('max_keep' IN (SELECT value FROM json_each(:given)), excluded.max_keep, max_keep),
    keep_unconsumed = iif(
        'keep_unconsumed' IN (SELECT value FROM json_each(:given)), excluded.keep_unconsumed, keep_unconsumed
    )

-- name: ReadStreamSettings
SELECT retain, max_keep, keep_unconsumed
FROM eventkit_topic
WHERE name = :topic

-- name: ConfigureChannel
INSERT INTO eventkit_channel (name, retain, max_keep)
VALUES (
    :channel, iif('retain' IN (SELECT value FROM json_each(:given)), :retain, 86400000), :max_keep
)
ON CONFLICT (name) DO UPDATE
SET
    retain = iif('retain' IN (SELECT value FROM json_each(:given)), excluded.retain, retain),
    max_keep = iif('max_keep' IN (SELECT value FROM json_each(:given)), excluded.max_keep, max_keep)

-- name: ReadChannelSettings
SELECT retain, max_keep
FROM eventkit_channel
WHERE name = :channel

-- name: ConfigureInbox
INSERT INTO eventkit_inbox_settings (name, retain)
VALUES (:consumer, :retain)
ON CONFLICT (name) DO UPDATE
SET retain = iif('retain' IN (SELECT value FROM json_each(:given)), excluded.retain, retain)

-- name: ReadInboxSettings
SELECT retain
FROM eventkit_inbox_settings
WHERE name = :consumer
