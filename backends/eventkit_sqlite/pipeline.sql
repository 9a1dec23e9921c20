-- Pipelines.

-- name: SavePipeline
INSERT INTO eventkit_pipeline (name, source, sink, state, batch, rows, lag, error)
VALUES (:name, :source, :sink, :state, :batch, :rows, :lag, :error)
ON CONFLICT (name) DO UPDATE
SET
    source = excluded.source,
    sink = excluded.sink,
    state = excluded.state,
    batch = coalesce(excluded.batch, batch),
    rows = rows + excluded.rows,
    lag = coalesce(excluded.lag, lag),
    error = excluded.error,
    started_at = iif(state <> 'running' AND excluded.state = 'running', :now, started_at),
    updated_at = :now

-- name: ListPipelines
SELECT name, source, sink, state, batch, rows, lag, error, started_at, updated_at
FROM eventkit_pipeline
ORDER BY name

-- name: RemovePipeline
DELETE FROM eventkit_pipeline
WHERE name = :name
RETURNING 1
