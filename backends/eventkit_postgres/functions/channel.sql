-- Channels.

CREATE OR REPLACE FUNCTION eventkit_add_notification(channel text, payload json, headers json) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    woken boolean := eventkit_wake('notification', $1);
    notified bigint;
BEGIN
    INSERT INTO eventkit_notification (id, channel, payload, headers)
    VALUES (nextval('eventkit_notification_id_seq'), $1, $2, $3)
    RETURNING id INTO notified;
    RETURN notified;
END
$$

CREATE OR REPLACE FUNCTION eventkit_notify(channel text, payload json, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN eventkit_add_notification(
        eventkit_check_name('channel', $1), eventkit_check_payload($2), eventkit_check_headers($3)
    );
END
$$

COMMENT ON FUNCTION eventkit_notify IS
    'Notifies the listeners when this transaction commits, and returns the number of the notification.'

CREATE OR REPLACE FUNCTION eventkit_notifications_after(channels text[], after bigint, "limit" bigint)
RETURNS TABLE (id bigint, channel text, payload text, headers text, created_ms bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('notification', $1);
BEGIN
    RETURN QUERY
    SELECT n.id, n.channel, n.payload::text, n.headers::text, eventkit_ms(n.created_at)
    FROM eventkit_notification AS n
    WHERE n.channel = ANY ($1) AND n.id > $2 AND n.id <= settled
    ORDER BY n.id
    LIMIT $3;
END
$$

CREATE OR REPLACE FUNCTION eventkit_notifications_ahead(channels text[], after bigint, created bigint)
RETURNS TABLE (ready boolean, due bigint, now bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('notification', $1);
    first record;
BEGIN
    SELECT n.id, eventkit_ms(clock_timestamp()) AS now, eventkit_ms(n.created_at) AS created
    INTO first
    FROM unnest($1) AS c (channel) CROSS JOIN LATERAL (
        SELECT m.id, m.created_at
        FROM eventkit_notification AS m
        WHERE m.channel = c.channel AND m.id > $2
        ORDER BY m.id
        LIMIT 1
    ) AS n
    ORDER BY n.id
    LIMIT 1;
    RETURN QUERY SELECT
        coalesce(first.id <= settled, false) OR (
            $3 > 0
            AND NOT EXISTS (SELECT FROM eventkit_notification AS n WHERE n.id = $2 AND eventkit_ms(n.created_at) <= $3)
        ),
        CASE WHEN first.id > settled THEN first.now + greatest(2, least(1000, (first.now - first.created) / 10)) END,
        coalesce(first.now, 0);
END
$$

CREATE OR REPLACE FUNCTION eventkit_latest_notification(channels text[]) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    settled bigint := eventkit_settled('notification', $1);
BEGIN
    RETURN QUERY
    SELECT settled
    UNION ALL
    SELECT n.id FROM eventkit_notification AS n WHERE n.channel = ANY ($1) AND n.id > settled;
END
$$
