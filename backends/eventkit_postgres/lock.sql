-- Locks.  A free lock has no expires_at, or one that has passed.  A lock that ends more than a second later than its
-- ttl from now was taken by a clock that was ahead.

-- A refused attempt only reads: a conflicting insert would lock the row, which is a write and a commit.  A lock taken
-- by a clock that was ahead also refuses the attempt, which may wait for the row and shortens it to its ttl from now.
-- name: AcquireLock
INSERT INTO eventkit_lock AS l (name, fence, token, holder, ttl, expires_at)
SELECT :name, 1, :token, :holder, :ttl::bigint, :now + :ttl::bigint * interval '1 ms'
WHERE NOT EXISTS (
    SELECT FROM eventkit_lock
    WHERE name = :name AND expires_at > :now AND expires_at <= :now + (ttl + 1000) * interval '1 ms'
)
ON CONFLICT (name) DO UPDATE
SET
    fence = CASE WHEN l.expires_at > :now THEN l.fence ELSE l.fence + 1 END,
    token = CASE WHEN l.expires_at > :now THEN l.token ELSE excluded.token END,
    holder = CASE WHEN l.expires_at > :now THEN l.holder ELSE excluded.holder END,
    ttl = CASE WHEN l.expires_at > :now THEN l.ttl ELSE excluded.ttl END,
    expires_at = CASE
        WHEN l.expires_at > :now
        THEN date_trunc('milliseconds', clock_timestamp()) + l.ttl * interval '1 ms'
        ELSE excluded.expires_at
    END
WHERE
    (l.expires_at > :now) IS NOT TRUE
    OR l.expires_at > clock_timestamp() + (l.ttl + 1000) * interval '1 ms'
RETURNING CASE WHEN token = :token THEN fence END

-- name: RenewLock
UPDATE eventkit_lock
SET ttl = :ttl::bigint, expires_at = :now + :ttl::bigint * interval '1 ms'
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING fence

-- Does not wait for the disk: if a crash of the server undoes it, the lock expires.
-- name: ReleaseLock
UPDATE eventkit_lock
SET token = NULL, holder = NULL, expires_at = NULL
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING eventkit_stir('lock', name), set_config('synchronous_commit', 'off', true)

-- name: ReadHolder
SELECT holder, eventkit_ms(expires_at) FROM eventkit_lock WHERE name = :name AND expires_at > :now

-- name: LockAhead
SELECT
    (
        SELECT eventkit_ms(expires_at) FROM eventkit_lock
        WHERE name = :name AND expires_at > :now AND expires_at <= :now + (ttl + 1000) * interval '1 ms'
    ),
    eventkit_ms(:now)
