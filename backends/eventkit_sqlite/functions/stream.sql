-- Streams and channels.

CREATE VIEW eventkit_do_publish (stream, payload, key, headers, dedup) AS SELECT NULL, NULL, NULL, NULL, NULL WHERE false

CREATE TRIGGER eventkit_do_publish_do INSTEAD OF INSERT ON eventkit_do_publish
BEGIN
    INSERT INTO eventkit_check_name VALUES ('stream', NEW.stream, 255);
    INSERT INTO eventkit_check_name SELECT 'key', NEW.key, 1000 WHERE NEW.key IS NOT NULL;
    INSERT INTO eventkit_check_name SELECT 'key', NEW.dedup, 1000 WHERE NEW.dedup IS NOT NULL;
    INSERT INTO eventkit_check_json VALUES ('payload', NEW.payload);
    INSERT INTO eventkit_check_json SELECT 'headers', NEW.headers WHERE NEW.headers IS NOT NULL;
    INSERT INTO eventkit_event (topic, payload, key, headers, dedup)
    VALUES (NEW.stream, NEW.payload, NEW.key, NEW.headers, NEW.dedup)
    ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING;
END

CREATE VIEW eventkit_do_save_offset (stream, consumer, "offset") AS SELECT NULL, NULL, NULL WHERE false

CREATE TRIGGER eventkit_do_save_offset_do INSTEAD OF INSERT ON eventkit_do_save_offset
BEGIN
    INSERT INTO eventkit_check_name VALUES ('stream', NEW.stream, 255), ('consumer', NEW.consumer, 255);
    INSERT INTO eventkit_check_number VALUES ('offset', NEW."offset", 0, 9223372036854775807);
    INSERT INTO eventkit_step_save_offset (topic, consumer, "offset")
    VALUES (NEW.stream, NEW.consumer, CAST(NEW."offset" AS INTEGER));
END

CREATE VIEW eventkit_step_save_offset (topic, consumer, "offset", created) AS SELECT NULL, NULL, NULL, NULL WHERE false

CREATE TRIGGER eventkit_step_save_offset_do INSTEAD OF INSERT ON eventkit_step_save_offset
BEGIN
    :SaveOffset;
END

CREATE VIEW eventkit_do_notify (channel, payload, headers) AS SELECT NULL, NULL, NULL WHERE false

CREATE TRIGGER eventkit_do_notify_do INSTEAD OF INSERT ON eventkit_do_notify
BEGIN
    INSERT INTO eventkit_check_name VALUES ('channel', NEW.channel, 255);
    INSERT INTO eventkit_check_json VALUES ('payload', NEW.payload);
    INSERT INTO eventkit_check_json SELECT 'headers', NEW.headers WHERE NEW.headers IS NOT NULL;
    :Notify;
END
