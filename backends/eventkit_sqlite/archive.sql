-- Archives.  Events pruned before a topic's first archive count as archived.

-- name: OpenLake
INSERT INTO eventkit_lake (topic, location, format, epoch, covered)
VALUES (
    :topic, :location, coalesce(:format, 'parquet'), 1,
    coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0)
)
ON CONFLICT (topic) DO UPDATE
SET epoch = epoch + 1, format = coalesce(:format, format), updated_at = :now
WHERE location = excluded.location AND format IN ('parquet', coalesce(:format, format))
RETURNING epoch, covered

-- name: AdoptLake
UPDATE eventkit_lake
SET epoch = max(epoch, :epoch)
WHERE topic = :topic

-- name: ReadLake
SELECT l.location, l.format, l.covered, f.path, f.date, f.first, f.last, f.rows, f.bytes, f.oldest, f.newest
FROM eventkit_lake AS l LEFT JOIN eventkit_lake_file AS f ON f.topic = l.topic AND f.retired_at IS NULL
WHERE l.topic = :topic
ORDER BY f.first, f.path

-- name: ListLakes
SELECT
    l.topic, l.location, l.format, l.covered,
    count(f.path), coalesce(sum(f.rows), 0), coalesce(sum(f.bytes), 0), l.updated_at
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
SELECT
    :topic, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
FROM json_each(:files)

-- name: HoldLake
UPDATE eventkit_lake
SET updated_at = :now
WHERE topic = :topic AND epoch = :epoch
RETURNING epoch

-- name: RetireFiles
UPDATE eventkit_lake_file
SET retired_at = :now
WHERE topic = :topic AND path IN (SELECT value FROM json_each(:paths)) AND retired_at IS NULL
RETURNING path

-- name: FindRetired
SELECT path
FROM eventkit_lake_file
WHERE topic = :topic AND retired_at <= :now - :grace

-- name: ListPaths
SELECT path
FROM eventkit_lake_file
WHERE topic = :topic

-- name: ForgetFiles
DELETE FROM eventkit_lake_file
WHERE topic = :topic AND path IN (SELECT value FROM json_each(:paths)) AND retired_at IS NOT NULL

-- name: PruneArchived
SELECT max(id)
FROM (
    SELECT id
    FROM eventkit_event
    WHERE
        topic = :topic
        AND id <= (SELECT covered FROM eventkit_lake WHERE topic = :topic AND location = :location)
        AND id < CASE WHEN :older_than IS NULL THEN 9223372036854775807 ELSE coalesce(
            (
                SELECT id FROM eventkit_event
                WHERE topic = :topic AND created_at >= :now - :older_than
                ORDER BY id LIMIT 1
            ),
            9223372036854775807
        ) END
        AND id <= CASE WHEN :keep_unconsumed THEN coalesce(
            (SELECT min(position) FROM eventkit_consumer WHERE topic = :topic), 9223372036854775807
        ) ELSE 9223372036854775807 END
    ORDER BY id
    LIMIT :limit
) AS archived
