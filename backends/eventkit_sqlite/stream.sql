-- Streams.  SQLite has one writer at a time, so offsets are committed in the order in which they are drawn:
-- all visible events are final.  AUTOINCREMENT keeps pruned offsets from being reused.

-- name: Publish
INSERT INTO eventkit_event (topic, key, payload, headers)
VALUES (:topic, :key, :payload, :headers)
RETURNING id

-- name: PublishPlain
INSERT INTO eventkit_event (topic, payload)
SELECT :topic, value
FROM json_each(:payloads)
RETURNING id

-- name: PublishMany
INSERT INTO eventkit_event (topic, payload, key, headers, dedup)
SELECT :topic, value ->> 0, value ->> 1, value ->> 2, value ->> 3
FROM json_each(:events)
WHERE true
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING
RETURNING id, dedup

-- step: FindDuplicates
SELECT dedup, id
FROM eventkit_event
WHERE topic = :topic AND dedup IN (SELECT value FROM json_each(:dedups))

-- name: ReadEvents
SELECT id, key, CAST(payload AS BLOB), CAST(headers AS BLOB), created_at
FROM eventkit_event
WHERE topic = :topic AND id > :after
ORDER BY id
LIMIT :limit

-- name: EventsAhead
SELECT
    EXISTS (SELECT 1 FROM eventkit_event WHERE topic = :topic AND id > :after)
    OR (
        :event > 0
        AND NOT EXISTS (SELECT 1 FROM eventkit_event WHERE id = :event AND topic = :topic AND created_at <= :created)
        AND NOT EXISTS (SELECT 1 FROM eventkit_topic WHERE name = :topic AND pruned_to >= :event)
    )

-- name: ReadHead
SELECT max(
    coalesce((SELECT max(id) FROM eventkit_event WHERE topic = :topic), 0),
    coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0)
)

-- name: FindLatest
SELECT coalesce(max(id), 0) FROM eventkit_event WHERE topic = :topic

-- Offsets and times grow together, so a binary search finds the place without an index over the times:
-- every event up to `low` is older than :moment, and `high` or the event after it is not.
-- name: FindOffset
WITH RECURSIVE search (low, high, older) AS (
    SELECT
        coalesce((SELECT min(id) FROM eventkit_event WHERE topic = :topic), 1) - 1,
        coalesce((SELECT max(id) FROM eventkit_event WHERE topic = :topic), 0) + 1,
        NULL
    UNION ALL
    SELECT
        iif(older IS NULL OR NOT older, low, (low + high) / 2),
        iif(older IS NULL OR older, high, (low + high) / 2),
        iif(older IS NOT NULL, NULL, coalesce((
            SELECT created_at < :moment
            FROM eventkit_event
            WHERE topic = :topic AND id <= (low + high) / 2
            ORDER BY id DESC
            LIMIT 1
        ), true))
    FROM search
    WHERE high - low > 1
)
SELECT max(min(low), 0) FROM search WHERE high - low = (SELECT min(high - low) FROM search)

-- Returns the proof of a reader's position.
-- step: ReadProof
SELECT
    i.id, coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0),
    e.id, e.key, CAST(e.payload AS BLOB), CAST(e.headers AS BLOB), e.created_at
FROM eventkit_identity AS i LEFT JOIN eventkit_event AS e ON e.id = (
    SELECT id FROM eventkit_event
    WHERE topic = :topic AND id <= :offset AND created_at <= :created
    ORDER BY id DESC LIMIT 1
)

-- With :created, only if the event is there; a pruned one still counts.
-- name: SaveOffset
INSERT INTO eventkit_consumer (topic, name, position)
SELECT :topic, :consumer, :offset
WHERE
    :created IS NULL
    OR EXISTS (SELECT 1 FROM eventkit_event WHERE id = :offset AND topic = :topic AND created_at <= :created)
    OR EXISTS (SELECT 1 FROM eventkit_topic WHERE name = :topic AND pruned_to >= :offset)
ON CONFLICT (topic, name) DO UPDATE
SET position = excluded.position, updated_at = :now
WHERE excluded.position > eventkit_consumer.position
RETURNING position

-- name: ListConsumers
SELECT
    name, position,
    (SELECT count(*) FROM eventkit_event AS e WHERE e.topic = c.topic AND e.id > c.position),
    updated_at
FROM eventkit_consumer AS c
WHERE topic = :topic
ORDER BY name

-- The events to delete are a prefix: all before the first one young enough, or all but the newest :keep_count,
-- the longer of the two, but no event that a consumer has still to read.
-- name: FindPrunable
SELECT max(id)
FROM eventkit_event
WHERE
    topic = :topic
    AND id <= max(:events_too_old, :events_too_many)
    AND id <= :consumed

-- The lease of a consumer name, which one holder has at a time.  A lease that ends later than any holder requests was
-- taken by a clock that was ahead, and does not count.
-- name: AcquireConsumer
INSERT INTO eventkit_consumer_lease AS l (topic, consumer, partition, holder, token, until)
VALUES (:topic, :consumer, :partition, :holder, :token, :now + :ttl)
ON CONFLICT (topic, consumer, partition) DO UPDATE
SET holder = excluded.holder, token = excluded.token, until = excluded.until
WHERE l.until NOT BETWEEN :now + 1 AND :now + 2 * :ttl
RETURNING token

-- name: LeaveConsumer
DELETE FROM eventkit_consumer_lease
WHERE topic = :topic AND consumer = :consumer AND partition = :partition AND token = :token
RETURNING token

-- name: ConsumerAhead
SELECT
    (
        SELECT until FROM eventkit_consumer_lease
        WHERE topic = :topic AND consumer = :consumer AND partition = :partition
            AND until BETWEEN :now + 1 AND :now + 2 * :ttl
    ),
    :now

-- Consumer groups.

-- step: LockGroup
UPDATE eventkit_consumer_group
SET generation = generation + :change
WHERE topic = :topic AND name = :group
RETURNING partitions, max_parked, paused, generation, NULL

-- step: ReadMembers
SELECT token, partition, holder, paused, until - :now
FROM eventkit_consumer_lease
WHERE topic = :topic AND consumer = :group AND partition > 0 AND :lease_counts
ORDER BY partition

-- step: TakePartitions
UPDATE eventkit_consumer_partition
SET token = :token
WHERE topic = :topic AND name = :group AND partition IN (SELECT value FROM json_each(:taken))
RETURNING partition, position, stopped

-- step: ReadParked
SELECT event, partition, key, attempt, due - :now
FROM eventkit_consumer_parked
WHERE topic = :topic AND name = :group AND partition IN (SELECT value FROM json_each(:partitions))
ORDER BY event

-- Saves nothing if the last event that was read is lost; a pruned one still counts.
-- step: SavePositions
UPDATE eventkit_consumer_partition AS p
SET position = max(p.position, s.position)
FROM (SELECT value ->> 0 AS partition, value ->> 1 AS position FROM json_each(:positions)) AS s
WHERE
    p.topic = :topic AND p.name = :group AND p.partition = s.partition AND p.token = :token
    AND (
        :event = 0
        OR EXISTS (SELECT 1 FROM eventkit_event WHERE id = :event AND topic = :topic AND created_at <= :created)
        OR EXISTS (SELECT 1 FROM eventkit_topic WHERE name = :topic AND pruned_to >= :event)
    )
RETURNING partition

-- step: AddParked
INSERT INTO eventkit_consumer_parked (topic, name, event, partition, key, attempt, due)
SELECT :topic, :group, value ->> 0, value ->> 1, value ->> 2, value ->> 3, :now + (value ->> 4)
FROM json_each(:parked)
WHERE true
ON CONFLICT (topic, name, event) DO UPDATE
SET attempt = excluded.attempt, due = excluded.due
WHERE excluded.attempt > eventkit_consumer_parked.attempt

-- step: DropParked
DELETE FROM eventkit_consumer_parked
WHERE topic = :topic AND name = :group AND event IN (SELECT value FROM json_each(:done))

-- step: ReadKeys
SELECT id, key
FROM eventkit_event
WHERE topic = :topic AND id > :after
ORDER BY id
LIMIT :limit

-- step: LoadEvents
SELECT id, key, CAST(payload AS BLOB), CAST(headers AS BLOB), created_at
FROM eventkit_event
WHERE id IN (SELECT value FROM json_each(:offsets)) AND +topic = :topic
ORDER BY id

-- name: MemberAhead
SELECT
    EXISTS (SELECT 1 FROM eventkit_event WHERE topic = :topic AND id > :after)
    OR NOT EXISTS (
        SELECT 1 FROM eventkit_consumer_group WHERE topic = :topic AND name = :group AND generation = :generation
    )
    OR (
        :event > 0
        AND NOT EXISTS (SELECT 1 FROM eventkit_event WHERE id = :event AND topic = :topic AND created_at <= :created)
        AND NOT EXISTS (SELECT 1 FROM eventkit_topic WHERE name = :topic AND pruned_to >= :event)
    )

-- name: DrainAhead
SELECT
    NOT EXISTS (SELECT 1 FROM eventkit_consumer_parked WHERE topic = :topic AND name = :group)
    AND NOT EXISTS (
        SELECT 1 FROM eventkit_event
        WHERE
            topic = :topic AND id <= :head
            AND id > (SELECT min(position) FROM eventkit_consumer_partition WHERE topic = :topic AND name = :group)
    )
