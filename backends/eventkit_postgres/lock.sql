-- Locks.  A lock that is free has no expires_at, or one that has passed.

-- name: AcquireLock
INSERT INTO eventkit_lock AS l (name, fence, token, holder, expires_at)
VALUES (:name, 1, :token, :holder, :now + :ttl::bigint * interval '1 ms')
ON CONFLICT (name) DO UPDATE
SET fence = l.fence + 1, token = excluded.token, holder = excluded.holder, expires_at = excluded.expires_at
WHERE (l.expires_at > :now) IS NOT TRUE
RETURNING fence

-- name: RenewLock
UPDATE eventkit_lock
SET expires_at = :now + :ttl::bigint * interval '1 ms'
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING fence

-- name: ReleaseLock
UPDATE eventkit_lock
SET token = NULL, holder = NULL, expires_at = NULL
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING eventkit_stir('lock', name)

-- name: ReadHolder
SELECT holder, eventkit_ms(expires_at)
FROM eventkit_lock
WHERE name = :name AND expires_at > :now

-- name: LockAhead
SELECT (SELECT eventkit_ms(expires_at) FROM eventkit_lock WHERE name = :name AND expires_at > :now), eventkit_ms(:now)

-- name: AdvanceLocks
UPDATE eventkit_lock
SET expires_at = expires_at - :milliseconds::bigint * interval '1 ms'
RETURNING eventkit_stir('lock', name)
