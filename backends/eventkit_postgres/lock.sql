-- Locks.  A free lock has no expires_at, or one that has passed.  A lock that ends more than a second later than its
-- ttl from now was taken by a clock that was ahead.

-- name: AcquireLock
SELECT eventkit_take_lock(:name, :token, :holder, :ttl)

-- A renewal that shortens the lock wakes those who wait until the earlier expiry.
-- name: RenewLock
WITH held AS MATERIALIZED (
    SELECT expires_at FROM eventkit_lock WHERE name = :name AND token = :token AND expires_at > :now FOR UPDATE
)
UPDATE eventkit_lock AS l
SET ttl = :ttl, expires_at = :now + :ttl::bigint * interval '1 ms'
FROM held
WHERE l.name = :name
RETURNING CASE WHEN l.expires_at < held.expires_at THEN eventkit_wake('lock', l.name) END

-- Does not wait for the disk: if a crash of the server undoes it, the lock expires.
-- name: ReleaseLock
SELECT set_config('synchronous_commit', 'off', true)
WHERE eventkit_free_lock(:name, :token)

-- name: ReadHolder
SELECT holder, eventkit_ms(expires_at) FROM eventkit_lock WHERE name = :name AND expires_at > :now

-- name: LockAhead
SELECT
    (
        SELECT eventkit_ms(expires_at) FROM eventkit_lock
        WHERE name = :name AND expires_at > :now AND expires_at <= :now + (ttl + 1000) * interval '1 ms'
    ),
    eventkit_ms(:now)
