-- Locks.  A lock that is free has no expires_at, or one that has passed.

-- Who is refused only reads: a row that is in conflict would be locked, and that written and committed.
-- name: AcquireLock
INSERT INTO eventkit_lock AS l (name, fence, token, holder, expires_at)
SELECT :name, 1, :token, :holder, :now + :ttl::bigint * interval '1 ms'
WHERE NOT EXISTS (SELECT FROM eventkit_lock WHERE name = :name AND expires_at > :now)
ON CONFLICT (name) DO UPDATE
SET fence = l.fence + 1, token = excluded.token, holder = excluded.holder, expires_at = excluded.expires_at
WHERE (l.expires_at > :now) IS NOT TRUE
RETURNING fence

-- name: RenewLock
UPDATE eventkit_lock
SET expires_at = :now + :ttl::bigint * interval '1 ms'
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING fence

-- The disk is not waited for: a crash of the server that takes this back leaves the lock to its expiry.
-- name: ReleaseLock
UPDATE eventkit_lock
SET token = NULL, holder = NULL, expires_at = NULL
WHERE name = :name AND token = :token AND expires_at > :now
RETURNING eventkit_stir('lock', name), set_config('synchronous_commit', 'off', true)

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
