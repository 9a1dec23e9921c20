-- Retention settings.

-- name: ConfigureStream
INSERT INTO eventkit_topic AS t (name, retain, max_keep, keep_unconsumed)
VALUES (:topic, :retain, :max_keep, :keep_unconsumed)
ON CONFLICT (name) DO UPDATE
SET
    retain = CASE WHEN 'retain' = ANY (:given::text[]) THEN excluded.retain ELSE t.retain END,
    max_keep = CASE WHEN 'max_keep' = ANY (:given) THEN excluded.max_keep ELSE t.max_keep END,
    keep_unconsumed = CASE
        WHEN 'keep_unconsumed' = ANY (:given) THEN excluded.keep_unconsumed ELSE t.keep_unconsumed
    END

-- name: ReadStreamSettings
SELECT retain, max_keep, keep_unconsumed
FROM eventkit_topic
WHERE name = :topic

-- name: ConfigureChannel
INSERT INTO eventkit_channel AS c (name, retain, max_keep)
VALUES (:channel, CASE WHEN 'retain' = ANY (:given::text[]) THEN :retain::bigint ELSE 86400000 END, :max_keep)
ON CONFLICT (name) DO UPDATE
SET
    retain = CASE WHEN 'retain' = ANY (:given) THEN excluded.retain ELSE c.retain END,
    max_keep = CASE WHEN 'max_keep' = ANY (:given) THEN excluded.max_keep ELSE c.max_keep END

-- name: ReadChannelSettings
SELECT retain, max_keep
FROM eventkit_channel
WHERE name = :channel

-- name: ConfigureInbox
INSERT INTO eventkit_inbox_settings AS r (name, retain)
VALUES (:consumer, :retain)
ON CONFLICT (name) DO UPDATE
SET retain = CASE WHEN 'retain' = ANY (:given::text[]) THEN excluded.retain ELSE r.retain END

-- name: ReadInboxSettings
SELECT retain
FROM eventkit_inbox_settings
WHERE name = :consumer
