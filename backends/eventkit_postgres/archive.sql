-- Archives.  Events pruned before a topic's first archive count as archived.

-- name: OpenLake
INSERT INTO eventkit_lake AS l (topic, location, format, epoch, covered)
VALUES (
    :topic, :location, coalesce(:format::text, 'parquet'), 1,
    coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0)
)
ON CONFLICT (topic) DO UPDATE
SET epoch = l.epoch + 1, format = coalesce(:format::text, l.format), updated_at = :now
WHERE l.location = excluded.location AND l.format IN ('parquet', coalesce(:format::text, l.format))
RETURNING epoch, covered

-- name: AdoptLake
UPDATE eventkit_lake
SET epoch = greatest(epoch, :epoch)
WHERE topic = :topic

-- name: ReadLake
SELECT l.location, l.format, l.covered, f.path, f.date, f.first, f.last, f.rows, f.bytes, f.oldest, f.newest
FROM eventkit_lake AS l LEFT JOIN eventkit_lake_file AS f ON f.topic = l.topic AND f.retired_at IS NULL
WHERE l.topic = :topic
ORDER BY f.first, f.path

-- name: ListLakes
SELECT
    l.topic, l.location, l.format, l.covered,
    count(f.path), coalesce(sum(f.rows), 0)::bigint, coalesce(sum(f.bytes), 0)::bigint, eventkit_ms(l.updated_at)
FROM eventkit_lake AS l LEFT JOIN eventkit_lake_file AS f ON f.topic = l.topic AND f.retired_at IS NULL
GROUP BY l.topic
ORDER BY l.topic

-- name: CoverLake
UPDATE eventkit_lake
SET covered = :last, updated_at = :now
WHERE topic = :topic AND epoch = :epoch AND covered = :after
RETURNING covered

-- name: AddFiles
INSERT INTO eventkit_lake_file (topic, path, date, first, last, rows, bytes, oldest, newest)
SELECT :topic, f.*
FROM unnest(
    :files.0::text[], :files.1::text[], :files.2::bigint[], :files.3::bigint[], :files.4::bigint[],
    :files.5::bigint[], :files.6::bigint[], :files.7::bigint[]
) AS f

-- name: HoldLake
UPDATE eventkit_lake
SET updated_at = :now
WHERE topic = :topic AND epoch = :epoch
RETURNING epoch

-- name: RetireFiles
UPDATE eventkit_lake_file
SET retired_at = :now
WHERE topic = :topic AND path = ANY (:paths::text[]) AND retired_at IS NULL
RETURNING path

-- name: FindRetired
SELECT path
FROM eventkit_lake_file
WHERE topic = :topic AND retired_at <= :now - :grace::bigint * interval '1 ms'

-- name: ListPaths
SELECT path
FROM eventkit_lake_file
WHERE topic = :topic

-- name: ForgetFiles
DELETE FROM eventkit_lake_file
WHERE topic = :topic AND path = ANY (:paths::text[]) AND retired_at IS NOT NULL

-- name: PruneArchived
SELECT max(id)
FROM (
    SELECT id
    FROM eventkit_event
    WHERE
        topic = :topic
        AND id <= (SELECT covered FROM eventkit_lake WHERE topic = :topic AND location = :location)
        AND id < CASE WHEN :older_than::bigint IS NULL THEN 9223372036854775807 ELSE coalesce(
            (
                SELECT id FROM eventkit_event
                WHERE topic = :topic AND created_at >= :now - :older_than::bigint * interval '1 ms'
                ORDER BY id LIMIT 1
            ),
            9223372036854775807
        ) END
        AND id <= CASE WHEN :keep_unconsumed::boolean THEN coalesce(
            (SELECT min(position) FROM eventkit_consumer WHERE topic = :topic), 9223372036854775807
        ) ELSE 9223372036854775807 END
    ORDER BY id
    LIMIT :limit
) AS archived
