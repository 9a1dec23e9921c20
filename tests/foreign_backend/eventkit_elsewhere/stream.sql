-- Streams.  SQLite has one writer at a time, so offsets are committed in the order in which they are drawn.

-- name: Publish
INSERT INTO elsewhere_event (topic, key, payload, headers)
VALUES (:topic, :key, :payload, :headers)
RETURNING id

-- name: PublishPlain
INSERT INTO elsewhere_event (topic, payload)
SELECT :topic, value
FROM json_each(:payloads)
RETURNING id

-- name: PublishMany
INSERT INTO elsewhere_event (topic, payload, key, headers, dedup)
SELECT :topic, value ->> 0, value ->> 1, value ->> 2, value ->> 3
FROM json_each(:events)
WHERE true
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING
RETURNING id, dedup

-- step: FindDuplicates
SELECT dedup, id
FROM elsewhere_event
WHERE topic = :topic AND dedup IN (SELECT value FROM json_each(:dedups))

-- name: ReadEvents
SELECT id, key, CAST(payload AS BLOB), CAST(headers AS BLOB), created_at
FROM elsewhere_event
WHERE topic = :topic AND id > :after
ORDER BY id
LIMIT :limit

-- step: ReadPrunedTo
SELECT pruned_to
FROM elsewhere_topic
WHERE name = :topic

-- name: EventsAhead
SELECT
    EXISTS (SELECT 1 FROM elsewhere_event WHERE topic = :topic AND id > :after)
    OR (
        :event > 0
        AND NOT EXISTS (SELECT 1 FROM elsewhere_event WHERE id = :event AND topic = :topic AND created_at <= :created)
        AND NOT EXISTS (SELECT 1 FROM elsewhere_topic WHERE name = :topic AND pruned_to >= :event)
    )

-- name: ReadHead
SELECT max(
    coalesce((SELECT max(id) FROM elsewhere_event WHERE topic = :topic), 0),
    coalesce((SELECT pruned_to FROM elsewhere_topic WHERE name = :topic), 0)
)

-- name: FindLatest
SELECT coalesce(max(id), 0) FROM elsewhere_event WHERE topic = :topic

-- name: FindOffset
WITH RECURSIVE search (low, high, older) AS (
    SELECT
        coalesce((SELECT min(id) FROM elsewhere_event WHERE topic = :topic), 1) - 1,
        coalesce((SELECT max(id) FROM elsewhere_event WHERE topic = :topic), 0) + 1,
        NULL
    UNION ALL
    SELECT
        iif(older IS NULL OR NOT older, low, (low + high) / 2),
        iif(older IS NULL OR older, high, (low + high) / 2),
        iif(older IS NOT NULL, NULL, coalesce((
            SELECT created_at < :moment
            FROM elsewhere_event
            WHERE topic = :topic AND id <= (low + high) / 2
            ORDER BY id DESC
            LIMIT 1
        ), true))
    FROM search
    WHERE high - low > 1
)
SELECT max(min(low), 0) FROM search WHERE high - low = (SELECT min(high - low) FROM search)

-- step: ReadProof
SELECT
    i.id, coalesce((SELECT pruned_to FROM elsewhere_topic WHERE name = :topic), 0),
    e.id, e.key, CAST(e.payload AS BLOB), CAST(e.headers AS BLOB), e.created_at
FROM eventkit_identity AS i LEFT JOIN elsewhere_event AS e ON e.id = (
    SELECT id FROM elsewhere_event
    WHERE topic = :topic AND id <= :offset AND created_at <= :created
    ORDER BY id DESC LIMIT 1
)

-- name: ReadOffset
SELECT position
FROM elsewhere_consumer
WHERE topic = :topic AND name = :consumer

-- With :created, only if the event is there; a pruned one still counts.
-- name: SaveOffset
INSERT INTO elsewhere_consumer (topic, name, position)
SELECT :topic, :consumer, :offset
WHERE
    :created IS NULL
    OR EXISTS (SELECT 1 FROM elsewhere_event WHERE id = :offset AND topic = :topic AND created_at <= :created)
    OR EXISTS (SELECT 1 FROM elsewhere_topic WHERE name = :topic AND pruned_to >= :offset)
ON CONFLICT (topic, name) DO UPDATE
SET position = excluded.position, updated_at = :now
WHERE excluded.position > elsewhere_consumer.position
RETURNING position

-- name: Seek
INSERT INTO elsewhere_consumer (topic, name, position)
VALUES (:topic, :consumer, :offset)
ON CONFLICT (topic, name) DO UPDATE
SET position = excluded.position, updated_at = :now

-- name: RemoveConsumer
DELETE FROM elsewhere_consumer
WHERE topic = :topic AND name = :consumer
RETURNING name

-- name: ListConsumers
SELECT
    name, position,
    (SELECT count(*) FROM elsewhere_event AS e WHERE e.topic = c.topic AND e.id > c.position),
    updated_at
FROM elsewhere_consumer AS c
WHERE topic = :topic
ORDER BY name

-- name: FindPrunable
SELECT max(id)
FROM elsewhere_event
WHERE
    topic = :topic
    AND id <= max(
        CASE WHEN :older_than IS NULL THEN 0 ELSE coalesce(
            (
                SELECT id - 1 FROM elsewhere_event
                WHERE topic = :topic AND created_at >= :now - :older_than
                ORDER BY id LIMIT 1
            ),
            9223372036854775807
        ) END,
        CASE WHEN :keep_count IS NULL THEN 0 ELSE coalesce(
            (SELECT id FROM elsewhere_event WHERE topic = :topic ORDER BY id DESC LIMIT 1 OFFSET :keep_count), 0
        ) END
    )
    AND id <= CASE WHEN :keep_unconsumed THEN coalesce(
        (SELECT min(position) FROM elsewhere_consumer WHERE topic = :topic), 9223372036854775807
    ) ELSE 9223372036854775807 END

-- step: DropEvents
DELETE FROM elsewhere_event
WHERE topic = :topic AND id <= :last
RETURNING 1

-- step: RememberPruned
INSERT INTO elsewhere_topic (name, pruned_to)
VALUES (:topic, :last)
ON CONFLICT (name) DO UPDATE
SET pruned_to = max(pruned_to, excluded.pruned_to)

-- name: AcquireConsumer
INSERT INTO elsewhere_consumer_lease AS l (topic, consumer, partition, holder, token, until)
VALUES (:topic, :consumer, :partition, :holder, :token, :now + :ttl)
ON CONFLICT (topic, consumer, partition) DO UPDATE
SET holder = excluded.holder, token = excluded.token, until = excluded.until
WHERE l.until NOT BETWEEN :now + 1 AND :now + 2 * :ttl
RETURNING token

-- name: KeepConsumer
UPDATE elsewhere_consumer_lease
SET until = :now + :ttl
WHERE topic = :topic AND consumer = :consumer AND partition = :partition AND token = :token
RETURNING token

-- name: LeaveConsumer
DELETE FROM elsewhere_consumer_lease
WHERE topic = :topic AND consumer = :consumer AND partition = :partition AND token = :token
RETURNING token

-- name: ReadConsumerHolder
SELECT holder
FROM elsewhere_consumer_lease
WHERE topic = :topic AND consumer = :consumer AND partition = :partition

-- name: ConsumerAhead
SELECT
    (
        SELECT until FROM elsewhere_consumer_lease
        WHERE topic = :topic AND consumer = :consumer AND partition = :partition
            AND until BETWEEN :now + 1 AND :now + 2 * :ttl
    ),
    :now
