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
    AND id <= greatest(
        CASE WHEN :older_than::bigint IS NULL THEN 0 ELSE coalesce(
            (
                SELECT id - 1 FROM eventkit_event
                WHERE topic = :topic AND created_at >= :now - :older_than::bigint * interval '1 ms'
                ORDER BY id LIMIT 1
            ),
            9223372036854775807
        ) END,
        CASE WHEN :keep_count::bigint IS NULL THEN 0 ELSE coalesce(
            (SELECT id FROM eventkit_event WHERE topic = :topic ORDER BY id DESC LIMIT 1 OFFSET :keep_count), 0
        ) END
    )
    AND id <= CASE WHEN :keep_unconsumed::boolean THEN coalesce(
        (SELECT min(position) FROM eventkit_consumer WHERE topic = :topic), 9223372036854775807
    ) ELSE 9223372036854775807 END
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

-- name: KeepConsumer
UPDATE eventkit_consumer_lease
SET until = :now + :ttl::bigint * interval '1 ms'
WHERE topic = :topic AND consumer = :consumer AND partition = :partition AND token = :token
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
