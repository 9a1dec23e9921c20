-- Results.

-- name: SaveResult
SELECT eventkit_store_result(:id, :value::json, :ttl)

-- name: SaveTaskResult
SELECT eventkit_save_task_result(:id, :value::json, :queue, :ttl)

-- step: SaveTaskResults
INSERT INTO eventkit_result (id, value, expires_at)
SELECT
    id::text, value::json,
    :now + coalesce(ttl, greatest(3600000, (SELECT keep_done FROM eventkit_queue WHERE name = r.queue))) * interval '1 ms'
FROM
    unnest(:results.0::bigint[], :results.1::text[], :results.2::text[], :results.3::bigint[])
    AS r (id, value, queue, ttl)
ON CONFLICT (id) DO UPDATE
SET value = excluded.value, expires_at = excluded.expires_at
RETURNING eventkit_wake('result', id)

-- name: GetResult
SELECT value::text FROM eventkit_result WHERE id = :id AND expires_at > :now

-- name: AwaitResult
SELECT r.value::text, t.queue, t.stored_state = 'dead', t.reason, t.error, t.code
FROM
    (SELECT) AS one
    LEFT JOIN eventkit_result AS r ON r.id = :id AND r.expires_at > :now
    LEFT JOIN eventkit_task_now AS t ON t.id = :task AND t.state = 'dead'

-- A task dies by the clock when it expires, or when its lease ends.  If another transaction has locked it then, that
-- one may be finishing it.
-- name: ResultAhead
SELECT
    EXISTS (SELECT FROM eventkit_result WHERE id = :id AND expires_at > :now)
    OR coalesce(n.state = 'dead' AND NOT held, false),
    eventkit_ms(CASE
        WHEN n.state = 'leased' THEN n.lease_expires_at
        WHEN n.state IN ('scheduled', 'ready') THEN n.expires_at
        WHEN held THEN :now + interval '20 ms'
    END),
    eventkit_ms(:now)
FROM
    (SELECT) AS one
    LEFT JOIN eventkit_task_now AS n ON n.id = :task
    LEFT JOIN LATERAL (
        SELECT n.state = 'dead' AND n.stored_state <> 'dead' AND eventkit_in_hand(t.xmax) AS held
        FROM eventkit_task AS t
        WHERE t.id = n.id
    ) AS hands ON true
