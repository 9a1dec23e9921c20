-- Streams and channels.

-- view: eventkit_do_publish (stream, payload, key, headers, dedup)
INSERT INTO eventkit_check_name VALUES ('stream', NEW.stream), ('key', NEW.key), ('key', NEW.dedup);
INSERT INTO eventkit_check_json VALUES ('payload', NEW.payload), ('headers', NEW.headers);
INSERT INTO eventkit_event (topic, payload, key, headers, dedup)
VALUES (NEW.stream, NEW.payload, NEW.key, NEW.headers, NEW.dedup)
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING;

-- view: eventkit_do_save_offset (stream, consumer, "offset")
INSERT INTO eventkit_check_name VALUES ('stream', NEW.stream), ('consumer', NEW.consumer);
INSERT INTO eventkit_check_number VALUES ('offset', NEW."offset", 0, 9223372036854775807);
INSERT INTO eventkit_step_save_offset (topic, consumer, "offset")
VALUES (NEW.stream, NEW.consumer, CAST(NEW."offset" AS INTEGER));

-- view: eventkit_step_save_offset (topic, consumer, "offset", created)
:SaveOffset;

-- view: eventkit_do_notify (channel, payload, headers)
INSERT INTO eventkit_check_name VALUES ('channel', NEW.channel);
INSERT INTO eventkit_check_json VALUES ('payload', NEW.payload), ('headers', NEW.headers);
:Notify;
