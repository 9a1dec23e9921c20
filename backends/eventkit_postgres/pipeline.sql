-- Pipelines.

-- name: SavePipeline
INSERT INTO eventkit_pipeline AS p (name, source, sink, state, batch, rows, lag, error)
VALUES (:name, :source, :sink, :state, :batch, :rows, :lag, :error)
ON CONFLICT (name) DO UPDATE
SET
    source = excluded.source,
    sink = excluded.sink,
    state = excluded.state,
    batch = coalesce(excluded.batch, p.batch),
    rows = p.rows + excluded.rows,
    lag = coalesce(excluded.lag, p.lag),
    error = excluded.error,
    started_at = CASE WHEN p.state <> 'running' AND excluded.state = 'running' THEN :now ELSE p.started_at END,
    updated_at = :now

-- name: ListPipelines
SELECT name, source, sink, state, batch, rows, lag, error, eventkit_ms(started_at), eventkit_ms(updated_at)
FROM eventkit_pipeline
ORDER BY name

-- name: RemovePipeline
DELETE FROM eventkit_pipeline
WHERE name = :name
RETURNING 1
