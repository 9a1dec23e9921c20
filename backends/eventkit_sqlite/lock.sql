-- Locks.  A lock that is free has no expires_at, or one that has passed.

-- name: AcquireLock
INSERT INTO eventkit_lock AS l (name, fence, token, holder, expires_at)
VALUES (:name, 1, :token, :holder, :now + :ttl)
ON CONFLICT (name) DO UPDATE
SET fence = l.fence + 1, token = excluded.token, holder = excluded.holder, expires_at = excluded.expires_at
WHERE (l.expires_at > :now) IS NOT TRUE
RETURNING fence

-- name: RenewLock
UPDATE eventkit_lock
SET expires_at = :now + :ttl
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING fence

-- name: ReleaseLock
UPDATE eventkit_lock
SET token = NULL, holder = NULL, expires_at = NULL
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING fence

-- name: ReadHolder
SELECT holder, expires_at
FROM eventkit_lock
WHERE name = :name AND expires_at > :now

-- name: LockAhead
SELECT (SELECT expires_at FROM eventkit_lock WHERE name = :name AND expires_at > :now), :now

-- name: AdvanceLocks
UPDATE eventkit_lock
SET expires_at = expires_at - :milliseconds
