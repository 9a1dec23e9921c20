-- Locks.  A free lock has no expires_at, or one that has passed.  A lock that ends more than a second later than its
-- ttl from now was taken by a clock that was ahead.

-- name: AcquireLock
SELECT eventkit_take_lock(:name, :token, :holder, :ttl)

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
