-- Locks.

-- FAIL keeps what a refused attempt has written: it shortens a lock that was taken by a clock that was ahead.
-- view: eventkit_do_lock (name, ttl, holder)
INSERT INTO eventkit_check_name VALUES ('lock', NEW.name), ('holder', NEW.holder);
INSERT INTO eventkit_check_number VALUES ('ttl', NEW.ttl, 0.001, 3162240000);
INSERT INTO eventkit_step_lock (name, token, holder, ttl)
VALUES (NEW.name, random() & 9223372036854775807, coalesce(NEW.holder, 'sql'), coalesce(CAST(round(NEW.ttl * 1000) AS INTEGER), 60000));

-- view: eventkit_step_lock (name, token, holder, ttl)
:AcquireLock;
SELECT RAISE(FAIL, 'the lock is held: try again later; eventkit_locked has its holder')
WHERE NOT EXISTS (SELECT 1 FROM eventkit_lock WHERE name = NEW.name AND token = NEW.token);

CREATE VIEW eventkit_locked (name, token, fence, holder, expires_ms) AS
SELECT name, CAST(token AS TEXT), fence, holder, expires_at FROM eventkit_lock WHERE expires_at > :now

-- view: eventkit_do_unlock (name, token)
INSERT INTO eventkit_check_name VALUES ('lock', NEW.name);
SELECT RAISE(ABORT, 'the lock was lost: roll back what was done under it, and acquire it for longer')
WHERE NOT EXISTS (SELECT 1 FROM eventkit_lock WHERE name = NEW.name AND token = NEW.token AND expires_at > :now);
:ReleaseLock;
