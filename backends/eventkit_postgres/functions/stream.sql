-- Streams.

CREATE OR REPLACE FUNCTION eventkit_append(
    topic text, payload json, key text, headers json, dedup text
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    marked boolean := eventkit_mark('event', $1);
    asleep boolean;
    published bigint;
BEGIN
    IF $5 IS NULL THEN
        INSERT INTO eventkit_event (id, topic, payload, key, headers)
        VALUES (nextval('eventkit_event_id_seq'), $1, $2, $3, $4)
        RETURNING id, marked AND (
            current_setting('transaction_isolation') <> 'read committed'
            OR EXISTS (SELECT FROM eventkit_sleeper AS s WHERE s.name = 'event:' || $1 AND s.until > clock_timestamp())
        ) INTO published, asleep;
    ELSE
        INSERT INTO eventkit_event (id, topic, payload, key, headers, dedup)
        VALUES (nextval('eventkit_event_id_seq'), $1, $2, $3, $4, $5)
        ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING
        RETURNING id INTO published;
        IF published IS NULL THEN
            SELECT id INTO published FROM eventkit_event WHERE topic = $1 AND dedup = $5;
        END IF;
        asleep := marked AND (
            current_setting('transaction_isolation') <> 'read committed'
            OR EXISTS (SELECT FROM eventkit_sleeper AS s WHERE s.name = 'event:' || $1 AND s.until > clock_timestamp())
        );
    END IF;
    IF asleep THEN
        PERFORM eventkit_notify_waiters('event', $1);
    END IF;
    RETURN published;
END
$$

CREATE OR REPLACE FUNCTION eventkit_publish(
    stream text, payload json, key text DEFAULT NULL, headers json DEFAULT NULL, dedup text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN eventkit_append(
        eventkit_check_name('stream', $1), eventkit_check_payload($2),
        CASE WHEN $3 IS NOT NULL THEN eventkit_check_name('key', $3, 1000) END, eventkit_check_headers($4),
        CASE WHEN $5 IS NOT NULL THEN eventkit_check_name('key', $5, 1000) END
    );
END
$$

COMMENT ON FUNCTION eventkit_publish IS
    'Publishes an event, in this transaction, and returns its offset, or that of the event with the dedup id.'

CREATE OR REPLACE FUNCTION eventkit_events_after(topic text, after bigint, "limit" bigint)
RETURNS TABLE (id bigint, key text, payload text, headers text, created_ms bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
BEGIN
    RETURN QUERY
    SELECT e.id, e.key, e.payload::text, e.headers::text, eventkit_ms(e.created_at)
    FROM eventkit_event AS e
    WHERE e.topic = $1 AND e.id > $2 AND e.id <= settled
    ORDER BY e.id
    LIMIT $3;
END
$$

-- The keys of events, which the index has; long ones only in part.
CREATE OR REPLACE FUNCTION eventkit_keys_after(topic text, after bigint, "limit" bigint)
RETURNS TABLE (id bigint, key text)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
BEGIN
    RETURN QUERY
    SELECT
        e.id,
        CASE
            WHEN length(e.key_start) < 200 THEN e.key_start
            WHEN e.key_start IS NOT NULL THEN (SELECT o.key FROM eventkit_event AS o WHERE o.id = e.id)
        END
    FROM eventkit_event AS e
    WHERE e.topic = $1 AND e.id > $2 AND e.id <= settled
    ORDER BY e.id
    LIMIT $3;
END
$$

-- Whether there is an event after a number, or the last event that was read is lost; and if the events are not settled,
-- when to check again: after a tenth of the time that they have been waiting.
CREATE OR REPLACE FUNCTION eventkit_events_ahead(topic text, after bigint, event bigint, created bigint)
RETURNS TABLE (ready boolean, due bigint, now bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
    first record;
BEGIN
    SELECT e.id, eventkit_ms(clock_timestamp()) AS now, eventkit_ms(e.created_at) AS created
    INTO first
    FROM eventkit_event AS e
    WHERE e.topic = $1 AND e.id > $2
    ORDER BY e.id
    LIMIT 1;
    RETURN QUERY SELECT
        coalesce(first.id <= settled, false) OR (
            $3 > 0
            AND NOT EXISTS (
                SELECT FROM eventkit_event AS e WHERE e.id = $3 AND e.topic = $1 AND eventkit_ms(e.created_at) <= $4
            )
            AND NOT EXISTS (SELECT FROM eventkit_topic AS t WHERE t.name = $1 AND t.pruned_to >= $3)
        ),
        CASE WHEN first.id > settled THEN first.now + greatest(2, least(1000, (first.now - first.created) / 10)) END,
        coalesce(first.now, 0);
END
$$

-- The position from which on later events are published: the last settled event, and on further rows the unsettled
-- ones that are visible already.
CREATE OR REPLACE FUNCTION eventkit_latest_event(topic text) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
BEGIN
    RETURN QUERY
    SELECT coalesce((SELECT max(e.id) FROM eventkit_event AS e WHERE e.topic = $1 AND e.id <= settled), 0)
    UNION ALL
    SELECT e.id FROM eventkit_event AS e WHERE e.topic = $1 AND e.id > settled;
END
$$

CREATE OR REPLACE FUNCTION eventkit_head(topic text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
BEGIN
    RETURN greatest(
        (SELECT max(e.id) FROM eventkit_event AS e WHERE e.topic = $1 AND e.id <= settled),
        (SELECT t.pruned_to FROM eventkit_topic AS t WHERE t.name = $1),
        0
    );
END
$$

-- The offset before the first event created at or after a time.  Concurrent publishers draw offsets and times in
-- slightly different orders, so a binary search finds a place a minute before, and a scan the rest.
CREATE OR REPLACE FUNCTION eventkit_offset_at(topic text, moment timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('event', ARRAY[$1]);
    low bigint := coalesce((SELECT min(e.id) FROM eventkit_event AS e WHERE e.topic = $1), 1) - 1;
    high bigint := coalesce((SELECT max(e.id) FROM eventkit_event AS e WHERE e.topic = $1 AND e.id <= settled), 0);
    head bigint := high;
    middle bigint;
BEGIN
    WHILE high - low > 1 LOOP
        middle := low + (high - low) / 2;
        IF $2 - interval '1 minute' > (
            SELECT e.created_at FROM eventkit_event AS e
            WHERE e.topic = $1 AND e.id <= middle
            ORDER BY e.id DESC
            LIMIT 1
        ) THEN
            low := middle;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN coalesce(
        (
            SELECT e.id - 1 FROM eventkit_event AS e
            WHERE e.topic = $1 AND e.id > low AND e.id <= settled AND e.created_at >= $2
            ORDER BY e.id
            LIMIT 1
        ),
        head
    );
END
$$

CREATE OR REPLACE FUNCTION eventkit_read(stream text, after bigint DEFAULT 0, "limit" bigint DEFAULT 1000) RETURNS json
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    name text := eventkit_check_name('stream', $1);
    start bigint := eventkit_check_count('after', coalesce($2, 0), 0);
    most bigint := eventkit_check_count('limit', coalesce($3, 1000), 1);
    first bigint;
    events json;
    pruned bigint;
BEGIN
    SELECT
        min(e.id),
        coalesce(json_agg(json_build_object(
            'offset', e.id, 'stream', name, 'key', e.key, 'payload', e.payload::json,
            'headers', coalesce(e.headers::json, '{}'), 'created_ms', e.created_ms
        ) ORDER BY e.id), '[]')
    INTO first, events
    FROM eventkit_events_after(name, start, most) AS e;
    IF start > 0 AND first IS DISTINCT FROM start + 1 THEN
        SELECT t.pruned_to INTO pruned FROM eventkit_topic AS t WHERE t.name = $1;
        IF pruned > start THEN
            RAISE EXCEPTION
                'the events % to % of stream % were pruned before they were read: read on after %',
                start + 1, pruned, quote_literal($1), pruned
            USING ERRCODE = 'no_data_found';
        END IF;
    END IF;
    RETURN events;
END
$$

COMMENT ON FUNCTION eventkit_read IS
    'Returns the events of a stream after an offset, in order: an array of objects.'

CREATE OR REPLACE FUNCTION eventkit_move_offset(topic text, consumer text, "offset" bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO eventkit_consumer AS c (topic, name, position)
    VALUES ($1, $2, $3)
    ON CONFLICT (topic, name) DO UPDATE
    SET position = excluded.position, updated_at = date_trunc('milliseconds', clock_timestamp())
    WHERE excluded.position > c.position;
    RETURN FOUND;
END
$$

CREATE OR REPLACE FUNCTION eventkit_save_offset(stream text, consumer text, "offset" bigint) RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
    SELECT eventkit_move_offset(
        eventkit_check_name('stream', $1), eventkit_check_name('consumer', $2), eventkit_check_count('offset', $3, 0)
    )
$$

COMMENT ON FUNCTION eventkit_save_offset IS
    'Moves a consumer forward; returns false if it is there or beyond already.'
