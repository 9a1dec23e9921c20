-- Keys of callers.  What was revoked stays, so that what it did before can be told.

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

-- name: AdvanceApiKeys
UPDATE eventkit_api_key
SET
    created_at = created_at - :milliseconds,
    expires_at = expires_at - :milliseconds,
    revoked_at = revoked_at - :milliseconds,
    former_until = former_until - :milliseconds
