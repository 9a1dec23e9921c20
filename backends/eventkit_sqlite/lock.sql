-- Locks.  A free lock has no expires_at, or one that has passed.  A lock that ends more than a second later than its
-- ttl from now was taken by a clock that was ahead.

-- A lock taken by a clock that was ahead also refuses the attempt, which shortens it to its ttl from now.
-- name: AcquireLock
INSERT INTO eventkit_lock (name, fence, token, holder, ttl, expires_at)
VALUES (:name, 1, :token, :holder, :ttl, :now + :ttl)
ON CONFLICT (name) DO UPDATE
SET
    fence = iif(expires_at > :now, fence, fence + 1),
    token = iif(expires_at > :now, token, excluded.token),
    holder = iif(expires_at > :now, holder, excluded.holder),
    ttl = iif(expires_at > :now, ttl, excluded.ttl),
    expires_at = iif(expires_at > :now, :now + ttl, excluded.expires_at)
WHERE (expires_at > :now) IS NOT TRUE OR expires_at > :now + ttl + 1000
RETURNING iif(token = :token, fence, NULL)

-- name: RenewLock
UPDATE eventkit_lock
SET ttl = :ttl, expires_at = :now + :ttl
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING fence

-- name: ReleaseLock
UPDATE eventkit_lock
SET token = NULL, holder = NULL, expires_at = NULL
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING fence

-- name: ReadHolder
SELECT holder, expires_at FROM eventkit_lock WHERE name = :name AND expires_at > :now

-- name: LockAhead
SELECT
    (
        SELECT expires_at FROM eventkit_lock
        WHERE name = :name AND expires_at > :now AND expires_at <= :now + ttl + 1000
    ),
    :now
