-- Streams.  Publishers commit in any order, so a reader stops at the settled offset: the functions
-- read that first, and the rows in a later snapshot.

-- name: Publish
SELECT eventkit_append(:topic, :payload::json, :key, :headers::json, NULL)

-- The mark is set before the first offset is drawn: a row needs both sides of the join.
-- name: PublishPlain
WITH woken AS MATERIALIZED (SELECT eventkit_wake('event', :topic))
INSERT INTO eventkit_event (id, topic, payload)
SELECT nextval('eventkit_event_id_seq'), :topic, payload::json
FROM woken, unnest(:payloads::text[]) AS payload
RETURNING id

-- name: PublishMany
WITH woken AS MATERIALIZED (SELECT eventkit_wake('event', :topic))
INSERT INTO eventkit_event (id, topic, payload, key, headers, dedup)
SELECT nextval('eventkit_event_id_seq'), :topic, payload::json, key, headers::json, dedup
FROM
    woken,
    unnest(:events.0::text[], :events.1::text[], :events.2::text[], :events.3::text[]) AS e (payload, key, headers, dedup)
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING
RETURNING id, dedup

-- step: FindDuplicates
SELECT dedup, id
FROM eventkit_event
WHERE topic = :topic AND dedup = ANY (:dedups::text[])

-- name: ReadEvents
SELECT id, key, payload, headers, created_ms
FROM eventkit_events_after(:topic, :after, :limit)

-- name: EventsAhead
SELECT ready, due, now
FROM eventkit_events_ahead(:topic, :after, :event, :created)

-- name: ReadHead
SELECT eventkit_head(:topic)

-- name: FindLatest
SELECT eventkit_latest_event(:topic)

-- name: FindOffset
SELECT eventkit_offset_at(:topic, eventkit_moment(:moment))

-- Returns the proof of a reader's position.
-- step: ReadProof
SELECT
    i.id, coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0),
    e.id, e.key, e.payload::text, e.headers::text, eventkit_ms(e.created_at)
FROM eventkit_identity AS i LEFT JOIN eventkit_event AS e ON e.id = (
    SELECT id FROM eventkit_event
    WHERE topic = :topic AND id <= :offset AND eventkit_ms(created_at) <= :created
    ORDER BY id DESC LIMIT 1
)

-- With :created, only if the event is there; a pruned one still counts.
-- name: SaveOffset
SELECT 1
WHERE CASE
    WHEN
        :created::bigint IS NULL
        OR EXISTS (
            SELECT FROM eventkit_event WHERE id = :offset AND topic = :topic AND eventkit_ms(created_at) <= :created
        )
        OR EXISTS (SELECT FROM eventkit_topic WHERE name = :topic AND pruned_to >= :offset)
    THEN eventkit_move_offset(:topic, :consumer, :offset)
    ELSE false
END

-- name: ListConsumers
SELECT
    name, position,
    (SELECT count(*) FROM eventkit_event AS e WHERE e.topic = c.topic AND e.id > c.position),
    eventkit_ms(updated_at)
FROM eventkit_consumer AS c
WHERE topic = :topic
ORDER BY name COLLATE "C"

-- The events to delete are a prefix: all before the first one young enough, or all but the newest :keep_count,
-- the longer of the two, but no event that a consumer has still to read, and none that is not settled.
-- name: FindPrunable
SELECT max(id)
FROM eventkit_event
WHERE
    topic = :topic
    AND id <= greatest(:events_too_old, :events_too_many)
    AND id <= :consumed
    AND id <= (SELECT eventkit_settled('event', ARRAY[:topic]))

-- The lease of a consumer name, which one holder has at a time.  A lease that ends later than any holder requests was
-- taken by a clock that was ahead, and does not count.  A refused caller only reads, and locks no row.
-- name: AcquireConsumer
INSERT INTO eventkit_consumer_lease AS l (topic, consumer, partition, holder, token, until)
SELECT :topic, :consumer, :partition, :holder, :token, :now + :ttl::bigint * interval '1 ms'
WHERE NOT EXISTS (
    SELECT FROM eventkit_consumer_lease
    WHERE topic = :topic AND consumer = :consumer AND partition = :partition
        AND until > :now AND until <= :now + 2 * :ttl::bigint * interval '1 ms'
)
ON CONFLICT (topic, consumer, partition) DO UPDATE
SET holder = excluded.holder, token = excluded.token, until = excluded.until
WHERE NOT (l.until > :now AND l.until <= :now + 2 * :ttl::bigint * interval '1 ms')
RETURNING token

-- name: LeaveConsumer
DELETE FROM eventkit_consumer_lease
WHERE topic = :topic AND consumer = :consumer AND partition = :partition AND token = :token
RETURNING eventkit_wake('consumer', topic || ':' || consumer)

-- name: ConsumerAhead
SELECT
    (
        SELECT eventkit_ms(until) FROM eventkit_consumer_lease
        WHERE topic = :topic AND consumer = :consumer AND partition = :partition
            AND until > :now AND until <= :now + 2 * :ttl::bigint * interval '1 ms'
    ),
    eventkit_ms(:now)

-- Consumer groups.

-- step: LockGroup
UPDATE eventkit_consumer_group
SET generation = generation + :change::bigint
WHERE topic = :topic AND name = :group
RETURNING
    partitions, max_parked, paused, generation,
    CASE WHEN :change::bigint > 0 THEN eventkit_wake('consumer', topic || ':' || name) END

-- step: ReadMembers
SELECT token, partition, holder, paused, eventkit_ms(until) - eventkit_ms(:now)
FROM eventkit_consumer_lease
WHERE topic = :topic AND consumer = :group AND partition > 0 AND :lease_counts
ORDER BY partition

-- A partition that a former member's transaction has locked is taken when that has ended; no token releases.
-- step: TakePartitions
WITH free AS MATERIALIZED (
    SELECT partition
    FROM eventkit_consumer_partition
    WHERE topic = :topic AND name = :group AND partition = ANY (:taken::bigint[])
    FOR UPDATE SKIP LOCKED
)
UPDATE eventkit_consumer_partition AS p
SET token = :token
FROM free
WHERE p.topic = :topic AND p.name = :group AND p.partition = free.partition
RETURNING p.partition, p.position, p.stopped

-- step: ReadParked
SELECT event, partition, key, attempt, eventkit_ms(due) - eventkit_ms(:now)
FROM eventkit_consumer_parked
WHERE topic = :topic AND name = :group AND partition = ANY (:partitions::bigint[])
ORDER BY event

-- Saves nothing if the last event that was read is lost; a pruned one still counts.
-- step: SavePositions
UPDATE eventkit_consumer_partition AS p
SET position = greatest(p.position, s.position)
FROM unnest(:positions.0::bigint[], :positions.1::bigint[]) AS s (partition, position)
WHERE
    p.topic = :topic AND p.name = :group AND p.partition = s.partition AND p.token = :token
    AND (
        :event::bigint = 0
        OR EXISTS (
            SELECT FROM eventkit_event WHERE id = :event AND topic = :topic AND eventkit_ms(created_at) <= :created
        )
        OR EXISTS (SELECT FROM eventkit_topic WHERE name = :topic AND pruned_to >= :event)
    )
RETURNING p.partition

-- step: AddParked
INSERT INTO eventkit_consumer_parked AS p (topic, name, event, partition, key, attempt, due)
SELECT :topic, :group, event, partition, key, attempt, :now + due * interval '1 ms'
FROM unnest(
    :parked.0::bigint[], :parked.1::bigint[], :parked.2::text[], :parked.3::bigint[], :parked.4::bigint[]
) AS e (event, partition, key, attempt, due)
ON CONFLICT (topic, name, event) DO UPDATE
SET attempt = excluded.attempt, due = excluded.due
WHERE excluded.attempt > p.attempt

-- step: DropParked
DELETE FROM eventkit_consumer_parked
WHERE topic = :topic AND name = :group AND event = ANY (:done::bigint[])

-- step: ReadKeys
SELECT id, key FROM eventkit_keys_after(:topic, :after, :limit)

-- step: LoadEvents
SELECT id, key, payload::text, headers::text, eventkit_ms(created_at)
FROM eventkit_event
WHERE id = ANY (:offsets::bigint[]) AND topic = :topic
ORDER BY id

-- name: MemberAhead
SELECT
    ready OR NOT EXISTS (
        SELECT FROM eventkit_consumer_group WHERE topic = :topic AND name = :group AND generation = :generation
    ),
    due, now
FROM eventkit_events_ahead(:topic, :after, :event, :created)

-- Saves are not announced, so the answer is read again every 0.2 s.
-- name: DrainAhead
SELECT
    NOT EXISTS (SELECT FROM eventkit_consumer_parked WHERE topic = :topic AND name = :group)
    AND NOT EXISTS (
        SELECT FROM eventkit_event
        WHERE
            topic = :topic AND id <= :head
            AND id > (SELECT min(position) FROM eventkit_consumer_partition WHERE topic = :topic AND name = :group)
    ),
    eventkit_ms(:now) + 200, eventkit_ms(:now)
