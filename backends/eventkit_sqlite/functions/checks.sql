-- The checks of arguments; NULL stands for one that was left out.  A trigger can only raise a text that is written out.

-- view: eventkit_check_name (kind, value) WHEN NEW.value IS NOT NULL OR NEW.kind NOT IN ('key', 'holder')
SELECT CASE NEW.kind
    WHEN 'queue' THEN RAISE(ABORT, 'the name of a queue has 1 to 255 characters, none of them control characters')
    WHEN 'worker' THEN RAISE(ABORT, 'the name of a worker has 1 to 255 characters, none of them control characters')
    WHEN 'stream' THEN RAISE(ABORT, 'the name of a stream has 1 to 255 characters, none of them control characters')
    WHEN 'consumer' THEN RAISE(ABORT, 'the name of a consumer has 1 to 255 characters, none of them control characters')
    WHEN 'channel' THEN RAISE(ABORT, 'the name of a channel has 1 to 255 characters, none of them control characters')
    WHEN 'lock' THEN RAISE(ABORT, 'the name of a lock has 1 to 255 characters, none of them control characters')
    WHEN 'holder' THEN RAISE(ABORT, 'the name of a holder has 1 to 255 characters, none of them control characters')
    ELSE RAISE(ABORT, 'a key has 1 to 1000 characters, none of them control characters')
END
WHERE
    typeof(NEW.value) <> 'text' OR length(NEW.value) NOT BETWEEN 1 AND iif(NEW.kind = 'key', 1000, 255)
    OR instr(NEW.value, char(0)) OR NEW.value GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*';

-- Some drivers bind each number as a float, or as a text.
-- view: eventkit_check_number (kind, value, least, most) WHEN NEW.value IS NOT NULL OR NEW.kind IN ('offset', 'seconds')
SELECT CASE NEW.kind
    WHEN 'batch' THEN RAISE(ABORT, 'batch is a whole number from 1 up')
    WHEN 'offset' THEN RAISE(ABORT, 'offset is a whole number from 0 up')
    WHEN 'priority' THEN RAISE(ABORT, 'priority is a whole number from -2147483648 to 2147483647')
    WHEN 'max_attempts' THEN RAISE(ABORT, 'max_attempts is a whole number from 1 up')
    WHEN 'lease' THEN RAISE(ABORT, 'lease is a number of seconds from 0 up to a hundred years')
    WHEN 'delay' THEN RAISE(ABORT, 'delay is a number of seconds, up to a hundred years, and not negative for a retry')
    WHEN 'expires' THEN RAISE(ABORT, 'expires is a number of seconds, up to a hundred years')
    WHEN 'seconds' THEN RAISE(ABORT, 'seconds is a number from 0 up to a hundred years')
    ELSE RAISE(ABORT, 'ttl is a number of seconds from 0.001 up to a hundred years')
END
WHERE
    (CAST(NEW.value AS NUMERIC) = NEW.value AND CAST(NEW.value AS NUMERIC) BETWEEN NEW.least AND NEW.most) IS NOT TRUE
    OR NEW.kind IN ('batch', 'offset', 'priority', 'max_attempts') AND CAST(NEW.value AS INTEGER) <> CAST(NEW.value AS NUMERIC);

-- view: eventkit_check_json (kind, value) WHEN NEW.value IS NOT NULL OR NEW.kind = 'payload'
SELECT CASE
    WHEN typeof(NEW.value) <> 'text' OR NOT json_valid(NEW.value) THEN CASE NEW.kind
        WHEN 'payload' THEN RAISE(ABORT, 'the payload is JSON text: for a null say ''null''')
        WHEN 'result' THEN RAISE(ABORT, 'the result is JSON text')
        ELSE RAISE(ABORT, 'headers are an object of strings, as JSON text')
    END
    WHEN length(CAST(NEW.value AS BLOB)) > 524288
    THEN RAISE(ABORT, 'the JSON has more than 524,288 bytes: store the data elsewhere and send a reference')
    WHEN NEW.kind = 'headers' THEN CASE
        WHEN json_type(NEW.value) <> 'object' OR EXISTS (SELECT 1 FROM json_each(NEW.value) WHERE type <> 'text')
        THEN RAISE(ABORT, 'headers are an object of strings, as JSON text')
    END
END;
