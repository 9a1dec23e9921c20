-- API keys.  Revoked keys are kept for the audit.

-- name: AddApiKey
INSERT INTO eventkit_api_key (id, name, hash, scopes, rate, burst, quota, created_at, expires_at)
VALUES (:id, :name, :hash, :scopes, :rate, :burst, :quota, :now, :now + :expires)
ON CONFLICT DO NOTHING
RETURNING 1

-- name: FindApiKey
SELECT
    id, name, scopes, rate, burst, quota, created_at, expires_at, revoked_at,
    CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now) THEN hash END,
    CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now) AND former_until > :now THEN former END
FROM eventkit_api_key
WHERE id = :id

-- name: AnyApiKey
SELECT 1
FROM eventkit_api_key
LIMIT 1

-- name: ListApiKeys
SELECT id, name, scopes, rate, burst, quota, created_at, expires_at, revoked_at
FROM eventkit_api_key
ORDER BY created_at, id

-- name: RevokeApiKey
UPDATE eventkit_api_key
SET revoked_at = :now
WHERE id = :id AND revoked_at IS NULL
RETURNING 1

-- name: RotateApiKey
UPDATE eventkit_api_key
SET hash = :hash, former = hash, former_until = :now + :grace
WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
RETURNING 1

-- Sessions of browsers.  A session ends with the secret that began it: when its key is revoked, expires, or has had
-- another secret for longer than the grace of the old one.
-- name: BeginSession
INSERT INTO eventkit_session (id, key, secret, expires_at)
VALUES (:id, :key, :secret, :now + :lasts)

-- name: FindSession
SELECT
    k.id, k.name, k.scopes, k.rate, k.burst, k.quota, k.created_at, k.expires_at,
    k.revoked_at
FROM eventkit_session AS s JOIN eventkit_api_key AS k ON k.id = s.key
WHERE
    s.id = :id AND s.expires_at > :now AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
    AND (k.hash = s.secret OR (k.former = s.secret AND k.former_until > :now))

-- name: EndSession
DELETE FROM eventkit_session
WHERE id = :id

-- step: ForgetSessions
DELETE FROM eventkit_session
WHERE expires_at <= :now
