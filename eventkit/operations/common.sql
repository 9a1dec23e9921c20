-- Statements with the same text in each backend of eventkit's own.  :info, :look and :api_key are parts of the backend.

-- Streams.

-- step: ReadPrunedTo
SELECT pruned_to
FROM eventkit_topic
WHERE name = :topic

-- name: ReadOffset
SELECT position
FROM eventkit_consumer
WHERE topic = :topic AND name = :consumer

-- name: Seek
INSERT INTO eventkit_consumer (topic, name, position)
VALUES (:topic, :consumer, :offset)
ON CONFLICT (topic, name) DO UPDATE
SET position = excluded.position, updated_at = :now

-- name: RemoveConsumer
DELETE FROM eventkit_consumer
WHERE topic = :topic AND name = :consumer
RETURNING name

-- The last row that FindPrunable deletes by each of its limits.
-- part: events_too_old
    CASE WHEN CAST(:older_than AS bigint) IS NULL THEN 0 ELSE coalesce(
        (
            SELECT id - 1 FROM eventkit_event
            WHERE topic = :topic AND created_at >= :now - CAST(:older_than AS bigint) * :ms
            ORDER BY id LIMIT 1
        ),
        9223372036854775807
    ) END

-- part: events_too_many
    CASE WHEN CAST(:keep_count AS bigint) IS NULL THEN 0 ELSE coalesce(
        (SELECT id FROM eventkit_event WHERE topic = :topic ORDER BY id DESC LIMIT 1 OFFSET :keep_count), 0
    ) END

-- part: consumed
    CASE WHEN CAST(:keep_unconsumed AS boolean) THEN coalesce(
        (
            SELECT min(position) FROM (
                SELECT position FROM eventkit_consumer WHERE topic = :topic
                UNION ALL
                SELECT position FROM eventkit_consumer_partition WHERE topic = :topic
                UNION ALL
                SELECT min(event) - 1 FROM eventkit_consumer_parked WHERE topic = :topic
            ) AS kept
        ),
        9223372036854775807
    ) ELSE 9223372036854775807 END

-- step: DropEvents
DELETE FROM eventkit_event
WHERE topic = :topic AND id <= :last
RETURNING 1

-- step: RememberPruned
INSERT INTO eventkit_topic AS t (name, pruned_to)
VALUES (:topic, :last)
ON CONFLICT (name) DO UPDATE
SET pruned_to = excluded.pruned_to
WHERE excluded.pruned_to > t.pruned_to

-- name: ReadConsumerHolder
SELECT holder
FROM eventkit_consumer_lease
WHERE topic = :topic AND consumer = :consumer AND partition = :partition

-- name: KeepConsumer
UPDATE eventkit_consumer_lease
SET until = :now + CAST(:ttl AS bigint) * :ms
WHERE topic = :topic AND consumer = :consumer AND partition = :partition AND token = :token
RETURNING token

-- Consumer groups.  The lease of a member has its number as the partition, from 1; it counts up to twice the longest
-- lease from now, because a longer one was taken by a clock that was ahead.

-- part: lease_counts
until > :now AND until <= :now + 1200000 * :ms

-- step: AddGroup
INSERT INTO eventkit_consumer_group (topic, name, partitions, max_parked)
VALUES (:topic, :group, :partitions, :max_parked)
ON CONFLICT (topic, name) DO NOTHING
RETURNING name

-- step: AddPartitions
INSERT INTO eventkit_consumer_partition (topic, name, partition, position)
WITH RECURSIVE numbers (number) AS (
    SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < CAST(:partitions AS bigint)
)
SELECT CAST(:topic AS text), CAST(:group AS text), number, CAST(:position AS bigint) FROM numbers

-- step: BoundParked
UPDATE eventkit_consumer_group SET max_parked = :max_parked WHERE topic = :topic AND name = :group

-- step: DropLapsedMembers
DELETE FROM eventkit_consumer_lease
WHERE topic = :topic AND consumer = :group AND partition > 0 AND NOT (:lease_counts)

-- step: AddMember
INSERT INTO eventkit_consumer_lease (topic, consumer, partition, holder, token, until, paused)
SELECT
    CAST(:topic AS text), CAST(:group AS text), coalesce(max(partition), 0) + 1, CAST(:holder AS text),
    CAST(:token AS bigint), :now + CAST(:ttl AS bigint) * :ms, CAST(:paused AS boolean)
FROM eventkit_consumer_lease
WHERE topic = :topic AND consumer = :group AND partition > 0

-- A lease that has ended is not renewed: another member may have taken its partitions.
-- name: KeepMember
UPDATE eventkit_consumer_lease
SET until = :now + CAST(:ttl AS bigint) * :ms
WHERE topic = :topic AND consumer = :group AND partition > 0 AND token = :token AND until > :now
RETURNING token

-- name: PauseMember
UPDATE eventkit_consumer_lease
SET paused = :paused
WHERE topic = :topic AND consumer = :group AND partition > 0 AND token = :token
RETURNING token

-- name: LeaveGroup
DELETE FROM eventkit_consumer_lease
WHERE topic = :topic AND consumer = :group AND partition > 0 AND token = :token

-- step: DropMembers
DELETE FROM eventkit_consumer_lease WHERE topic = :topic AND consumer = :group AND partition > 0

-- step: ReadPartitions
SELECT partition, position, stopped, token
FROM eventkit_consumer_partition
WHERE topic = :topic AND name = :group
ORDER BY partition

-- name: ReadGeneration
SELECT generation FROM eventkit_consumer_group WHERE topic = :topic AND name = :group

-- name: StopPartition
UPDATE eventkit_consumer_partition
SET stopped = true
WHERE topic = :topic AND name = :group AND partition = :partition AND token = :token
RETURNING partition

-- step: StartPartitions
UPDATE eventkit_consumer_partition SET stopped = false WHERE topic = :topic AND name = :group AND stopped

-- name: PauseGroup
UPDATE eventkit_consumer_group SET paused = :paused WHERE topic = :topic AND name = :group

-- name: ResetGroup
UPDATE eventkit_consumer_partition
SET position = :position, token = NULL, stopped = false
WHERE topic = :topic AND name = :group

-- name: RemoveGroup
DELETE FROM eventkit_consumer_group WHERE topic = :topic AND name = :group RETURNING name

-- step: DropPartitions
DELETE FROM eventkit_consumer_partition WHERE topic = :topic AND name = :group

-- step: DropAllParked
DELETE FROM eventkit_consumer_parked WHERE topic = :topic AND name = :group

-- step: CountParked
SELECT partition, count(*) FROM eventkit_consumer_parked WHERE topic = :topic AND name = :group GROUP BY partition

-- step: CountEvents
SELECT count(*) FROM eventkit_event WHERE topic = :topic AND id > :after AND id <= :last

-- name: ListGroups
SELECT name, partitions, max_parked, paused
FROM eventkit_consumer_group
WHERE topic = :topic AND (CAST(:group AS text) IS NULL OR name = :group)
ORDER BY name

-- Queues.

-- name: GetTask
SELECT :info FROM eventkit_task_now WHERE queue = :queue AND id = :id

-- name: ListTasks
SELECT :info
FROM eventkit_task_now
WHERE
    queue = :queue AND id > :after AND (CAST(:state AS text) IS NULL OR state = :state)
    AND (CAST(:group AS text) IS NULL OR group_key = :group)
ORDER BY id
LIMIT :limit

-- Each part uses one index: ready tasks, in a fair queue by their turns, and tasks due to become ready.
-- name: PeekTasks
SELECT :info
FROM (
    SELECT * FROM (
        SELECT * FROM eventkit_task_now
        WHERE queue = :queue AND stored_state = 'ready' AND state = 'ready'
        ORDER BY priority DESC, run_at, id
        LIMIT CASE WHEN (SELECT fair FROM eventkit_queue WHERE name = :queue) THEN 0 ELSE CAST(:limit AS bigint) END
    ) AS few
    UNION ALL
    SELECT * FROM (
        SELECT * FROM eventkit_task_now
        WHERE queue = :queue AND stored_state = 'ready' AND state = 'ready' AND turn IS NOT NULL
        ORDER BY priority DESC, turn, id
        LIMIT :limit
    ) AS in_turn
    UNION ALL
    SELECT * FROM eventkit_task_now
    WHERE queue = :queue AND stored_state IN ('scheduled', 'leased') AND wake_at <= :now AND state = 'ready'
) AS best
ORDER BY priority DESC, turn, best.run_at, id
LIMIT :limit

-- name: ListDead
SELECT :info
FROM eventkit_task_now
WHERE queue = :queue AND stored_state = 'dead' AND finished_at IS NOT NULL
ORDER BY eventkit_task_now.finished_at DESC, id DESC
LIMIT :limit

-- part: due_moments
(
    SELECT min(run_at) AS moment FROM eventkit_task WHERE queue = :queue AND state = 'ready'
    UNION ALL
    SELECT min(wake_at) FROM eventkit_task WHERE queue = :queue AND state = 'scheduled' AND wake_at IS NOT NULL
    UNION ALL
    SELECT min(wake_at) FROM eventkit_task WHERE queue = :queue AND state = 'leased' AND wake_at IS NOT NULL
) AS moments

-- part: has_tasks
    EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND state = 'ready')
    OR EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND wake_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND finished_at IS NOT NULL)

-- The row is inserted or locked, so that of two concurrent calls the second begins with what the first wrote.
-- step: AddQueue
INSERT INTO eventkit_queue (name)
SELECT CAST(:queue AS text)
WHERE NOT (:has_tasks)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: FindQueue
SELECT 1
WHERE EXISTS (SELECT 1 FROM eventkit_queue WHERE name = :queue) OR :has_tasks

-- name: ReadSettings
SELECT
    max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl, dead_letter_to, history,
    max_bytes, strict_keys, enqueue_rate, enqueue_burst, ordered, on_dead, fair, group_max_running, group_rate, weights
FROM eventkit_queue
WHERE name = :queue

-- step: FindTasks
SELECT 1
WHERE
    EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND state = 'ready')
    OR EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND state IN ('scheduled', 'leased') AND wake_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND state = 'scheduled' AND group_key IS NOT NULL)
    OR EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL)

-- step: DropTasks
DELETE FROM eventkit_task WHERE queue = :queue

-- step: DropKeysOfQueue
DELETE FROM eventkit_key WHERE queue = :queue

-- name: GetWebhook
SELECT :info FROM eventkit_task_now WHERE id = :id AND job

-- name: ListWebhooks
SELECT :info
FROM eventkit_task_now
WHERE job AND (CAST(:state AS text) IS NULL OR state = :state)
ORDER BY id
LIMIT :limit OFFSET :skip

-- name: ListWebhooksOf
SELECT :info
FROM eventkit_task_now
WHERE job AND queue = :queue AND (CAST(:state AS text) IS NULL OR state = :state)
ORDER BY id
LIMIT :limit OFFSET :skip

-- name: ReadStreamSettings
SELECT keep, keep_count, keep_unconsumed FROM eventkit_topic WHERE name = :topic

-- name: ReadChannelSettings
SELECT keep, keep_count FROM eventkit_channel WHERE name = :channel

-- name: ReadInboxSettings
SELECT keep FROM eventkit_inbox_settings WHERE name = :consumer

-- Outboxes and inboxes.

-- part: messages
(
    SELECT state, enqueued_at FROM eventkit_task_now WHERE queue = :queue AND stored_state = 'ready'
    UNION ALL
    SELECT state, enqueued_at FROM eventkit_task_now
    WHERE queue = :queue AND stored_state IN ('scheduled', 'leased') AND wake_at IS NOT NULL
    UNION ALL
    SELECT state, enqueued_at FROM eventkit_task
    WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL
) AS message

-- name: OpenOutbox
INSERT INTO eventkit_queue AS q (name, max_attempts, retry, ordered)
VALUES (:queue, :max_attempts, :retry, CAST(:ordered AS boolean))
ON CONFLICT (name) DO UPDATE
SET
    max_attempts = coalesce(q.max_attempts, excluded.max_attempts), retry = coalesce(q.retry, excluded.retry),
    ordered = excluded.ordered OR q.ordered
WHERE q.max_attempts IS NULL OR q.retry IS NULL OR excluded.ordered AND q.ordered IS NOT true

-- Of two transactions with the same message, the second waits for the end of the first.
-- name: See
INSERT INTO eventkit_inbox (consumer, message_id)
VALUES (:consumer, :message_id)
ON CONFLICT (consumer, message_id) DO NOTHING
RETURNING 1

-- name: PruneInbox
DELETE FROM eventkit_inbox
WHERE consumer = :consumer AND seen_at <= :now - CAST(:older_than AS bigint) * :ms
RETURNING 1

-- Schedules.

-- name: RemoveSchedule
DELETE FROM eventkit_schedule WHERE name = :name RETURNING name

-- Workers.

-- step: SaveWorker
INSERT INTO eventkit_worker (name, queues, slots, running)
VALUES (:name, :queues, :slots, :running)
ON CONFLICT (name) DO UPDATE
SET queues = excluded.queues, slots = excluded.slots, running = excluded.running, seen_at = :now

-- name: SignOff
DELETE FROM eventkit_worker WHERE name = :name

-- The names of all queues, and of all topics.  Skips from one to the next by the indexes.
-- part: all_queues
working (name) AS (
    SELECT ''
    UNION ALL
    SELECT (
        SELECT min(queue) FROM (
            SELECT min(t.queue) AS queue FROM eventkit_task AS t WHERE t.state = 'ready' AND t.queue > w.name
            UNION ALL
            SELECT min(t.queue) FROM eventkit_task AS t WHERE t.wake_at IS NOT NULL AND t.queue > w.name
            UNION ALL
            SELECT min(t.queue) FROM eventkit_task AS t WHERE t.finished_at IS NOT NULL AND t.queue > w.name
        ) AS further
    )
    FROM working AS w
    WHERE w.name IS NOT NULL
),
queues (name) AS (SELECT name FROM working WHERE name <> '' UNION SELECT name FROM eventkit_queue)

-- part: all_topics
publishing (name) AS (
    SELECT ''
    UNION ALL
    SELECT (SELECT min(e.topic) FROM eventkit_event AS e WHERE e.topic > p.name)
    FROM publishing AS p
    WHERE p.name IS NOT NULL
),
topics (name) AS (
    SELECT name FROM publishing WHERE name <> ''
    UNION
    SELECT name FROM eventkit_topic
    UNION
    SELECT topic FROM eventkit_consumer
    UNION
    SELECT topic FROM eventkit_consumer_group
)

-- step: DropWorkers
DELETE FROM eventkit_worker WHERE seen_at <= :now - CAST(:older_than AS bigint) * :ms

-- Browsing, pipelines, API keys and sessions.

-- Skips from one queue to the next by the index.
-- part: with_ended
WITH RECURSIVE
clock (now) AS (SELECT :now),
ended (name) AS (
    SELECT ''
    UNION ALL
    SELECT (SELECT min(t.queue) FROM eventkit_task AS t WHERE t.finished_at IS NOT NULL AND t.queue > e.name)
    FROM ended AS e
    WHERE e.name IS NOT NULL
)

-- name: FindTask
SELECT :look FROM eventkit_task_now WHERE queue = :queue AND id = :id

-- name: FindTasksOfKey
SELECT :look
FROM eventkit_task_now
WHERE id IN (
    SELECT id FROM eventkit_task WHERE queue = :queue AND key = :key AND state <> 'done'
    UNION ALL
    SELECT id FROM (SELECT id FROM eventkit_task WHERE queue = :queue AND group_key = :key AND state <> 'done' LIMIT :limit) AS few
)
ORDER BY id DESC
LIMIT :limit

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

-- name: RemovePipeline
DELETE FROM eventkit_pipeline WHERE name = :name RETURNING 1

-- name: FindApiKey
SELECT
    :api_key,
    CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now) THEN hash END,
    CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now) AND former_until > :now THEN former END
FROM eventkit_api_key AS k
WHERE id = :id

-- name: AnyApiKey
SELECT 1 FROM eventkit_api_key LIMIT 1

-- name: ListApiKeys
SELECT :api_key
FROM eventkit_api_key AS k
ORDER BY created_at, id

-- name: RevokeApiKey
UPDATE eventkit_api_key SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL RETURNING 1

-- name: FindSession
SELECT :api_key
FROM eventkit_session AS s JOIN eventkit_api_key AS k ON k.id = s.key
WHERE
    s.id = :id AND s.expires_at > :now AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
    AND (k.hash = s.secret OR (k.former = s.secret AND k.former_until > :now))

-- name: EndSession
DELETE FROM eventkit_session WHERE id = :id

-- step: ForgetSessions
DELETE FROM eventkit_session WHERE expires_at <= :now

-- name: AddApiKey
INSERT INTO eventkit_api_key (id, name, hash, scopes, rate, burst, quota, created_at, expires_at)
VALUES (:id, :name, :hash, :scopes, :rate, :burst, :quota, :now, :now + CAST(:expires AS bigint) * :ms)
ON CONFLICT DO NOTHING
RETURNING 1

-- Sessions of browsers.  A session ends with the secret that began it: when its key is revoked, expires, or has had
-- another secret for longer than the grace of the old one.
-- name: BeginSession
INSERT INTO eventkit_session (id, key, secret, expires_at)
VALUES (:id, :key, :secret, :now + CAST(:lasts AS bigint) * :ms)

-- name: RotateApiKey
UPDATE eventkit_api_key
SET hash = :hash, former = hash, former_until = :now + CAST(:grace AS bigint) * :ms
WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
RETURNING 1

-- Staged rows, archives and hourly sums.

-- name: DropStaged
DELETE FROM eventkit_staged_rows WHERE writer = :writer AND batch <= :batch

-- name: MoveMark
INSERT INTO eventkit_written_batch AS w (writer, batch)
SELECT CAST(:writer AS text), CAST(:to AS bigint)
WHERE CAST(:after AS bigint) = 0 OR EXISTS (SELECT 1 FROM eventkit_written_batch WHERE writer = :writer)
ON CONFLICT (writer) DO UPDATE
SET batch = excluded.batch, written_at = :now
WHERE w.batch = CAST(:after AS bigint)
RETURNING batch

-- name: ReadMark
SELECT batch FROM eventkit_written_batch WHERE writer = :writer

-- name: OpenArchive
INSERT INTO eventkit_lake AS l (topic, location, format, epoch, covered)
VALUES (
    :topic, :location, coalesce(CAST(:format AS text), 'parquet'), 1,
    coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0)
)
ON CONFLICT (topic) DO UPDATE
SET epoch = l.epoch + 1, format = coalesce(CAST(:format AS text), l.format), updated_at = :now
WHERE l.location = excluded.location AND l.format IN ('parquet', coalesce(CAST(:format AS text), l.format))
RETURNING epoch, covered

-- name: AdoptArchive
UPDATE eventkit_lake SET epoch = :epoch WHERE topic = :topic AND epoch < :epoch

-- name: ReadArchive
SELECT l.location, l.format, l.covered, f.path, f.date, f.first, f.last, f.rows, f.bytes, f.oldest, f.newest
FROM eventkit_lake AS l LEFT JOIN eventkit_lake_file AS f ON f.topic = l.topic AND f.retired_at IS NULL
WHERE l.topic = :topic
ORDER BY f.first, f.path

-- step: CoverArchive
UPDATE eventkit_lake
SET covered = :last, updated_at = :now
WHERE topic = :topic AND epoch = :epoch AND covered = :after
RETURNING covered

-- step: HoldArchive
UPDATE eventkit_lake SET updated_at = :now WHERE topic = :topic AND epoch = :epoch RETURNING epoch

-- name: ListPaths
SELECT path FROM eventkit_lake_file WHERE topic = :topic

-- name: ReadSums
SELECT subject, name, hour, measure, amount
FROM eventkit_rollup
WHERE hour >= :since AND hour < :before
ORDER BY subject, name, hour, measure

-- name: MarkWritten
INSERT INTO eventkit_written_batch AS w (writer, batch, expires_at)
VALUES (:writer, :batch, :now + CAST(:keep AS bigint) * :ms)
ON CONFLICT (writer) DO UPDATE
SET batch = excluded.batch, written_at = :now, expires_at = excluded.expires_at
WHERE excluded.batch > w.batch
RETURNING batch

-- name: FindRetired
SELECT path FROM eventkit_lake_file WHERE topic = :topic AND retired_at <= :now - CAST(:grace AS bigint) * :ms

-- name: PruneArchived
SELECT max(id)
FROM (
    SELECT id
    FROM eventkit_event
    WHERE
        topic = :topic
        AND id <= (SELECT covered FROM eventkit_lake WHERE topic = :topic AND location = :location)
        AND id < CASE WHEN CAST(:older_than AS bigint) IS NULL THEN 9223372036854775807 ELSE coalesce(
            (
                SELECT id FROM eventkit_event
                WHERE topic = :topic AND created_at >= :now - CAST(:older_than AS bigint) * :ms
                ORDER BY id LIMIT 1
            ),
            9223372036854775807
        ) END
        AND id <= :consumed
    ORDER BY id
    LIMIT :limit
) AS archived

-- Channels.

-- part: notifications_too_old
    CASE WHEN CAST(:older_than AS bigint) IS NULL THEN 0 ELSE coalesce(
        (
            SELECT id - 1 FROM eventkit_notification
            WHERE channel = :channel AND created_at >= :now - CAST(:older_than AS bigint) * :ms
            ORDER BY id LIMIT 1
        ),
        9223372036854775807
    ) END

-- part: notifications_too_many
    CASE WHEN CAST(:keep_count AS bigint) IS NULL THEN 0 ELSE coalesce(
        (SELECT id FROM eventkit_notification WHERE channel = :channel ORDER BY id DESC LIMIT 1 OFFSET :keep_count), 0
    ) END

-- name: ReadChannelHead
SELECT :channel_head FROM (SELECT CAST(:channel AS text) AS name) AS c

-- name: ListChannels
WITH RECURSIVE :all_channels
SELECT
    c.name, :channel_head,
    (SELECT count(*) FROM (SELECT 1 FROM eventkit_notification AS n WHERE n.channel = c.name LIMIT :limit) AS few)
FROM (SELECT name FROM channels WHERE name IS NOT NULL UNION SELECT name FROM eventkit_channel) AS c

-- step: DropNotifications
DELETE FROM eventkit_notification
WHERE channel = :channel AND id <= :last
RETURNING 1

-- The database, its maintenance, and extracts.

-- name: ReadSchema
SELECT version_num FROM eventkit_version

-- name: ReadCondition
SELECT schema_hash, incomplete FROM eventkit_identity

-- name: MarkIncomplete
UPDATE eventkit_identity SET incomplete = :what

-- Skips from one queue to the next by the index, so that tasks that are not due cost nothing.
-- part: with_queues
WITH RECURSIVE queues (name) AS (
    SELECT min(queue) FROM eventkit_task WHERE wake_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(t.queue) FROM eventkit_task AS t WHERE t.wake_at IS NOT NULL AND t.queue > q.name)
    FROM queues AS q
    WHERE q.name IS NOT NULL
)

-- name: FindDueQueues
:with_queues
SELECT name
FROM queues
WHERE
    name IS NOT NULL
    AND EXISTS (
        SELECT 1 FROM eventkit_task AS t
        WHERE t.queue = name AND t.state IN ('scheduled', 'leased', 'ready') AND t.wake_at <= :now
    )

-- The oldest event shows whether any is too old.
-- name: FindStaleTopics
SELECT t.name, t.keep, t.keep_count, t.keep_unconsumed
FROM eventkit_topic AS t
WHERE
    t.keep_count IS NOT NULL
    OR :now - t.keep * :ms > (
        SELECT e.created_at FROM eventkit_event AS e WHERE e.topic = t.name ORDER BY e.id LIMIT 1
    )

-- Skips from one channel to the next by the index.
-- part: all_channels
channels (name) AS (
    SELECT min(channel) FROM eventkit_notification
    UNION ALL
    SELECT (SELECT min(n.channel) FROM eventkit_notification AS n WHERE n.channel > c.name)
    FROM channels AS c
    WHERE c.name IS NOT NULL
)

-- A channel without settings keeps notifications for a day.
-- name: FindStaleChannels
WITH RECURSIVE
:all_channels,
settings (name, keep, keep_count) AS (
    SELECT n.name, CASE WHEN c.name IS NULL THEN 86400000 ELSE c.keep END, c.keep_count
    FROM channels AS n LEFT JOIN eventkit_channel AS c ON c.name = n.name
    WHERE n.name IS NOT NULL
)
SELECT s.name, s.keep, s.keep_count
FROM settings AS s
WHERE
    s.keep_count IS NOT NULL
    OR :now - s.keep * :ms > (
        SELECT n.created_at FROM eventkit_notification AS n WHERE n.channel = s.name ORDER BY n.id LIMIT 1
    )

-- name: ReadIdentity
SELECT id FROM eventkit_identity

-- name: FindEnd
SELECT max(id), count(*)
FROM (
    SELECT id
    FROM eventkit_event
    WHERE topic = :topic AND id > :after AND id <= :last
    ORDER BY id
    LIMIT :most
) AS events

-- name: FetchStanding
SELECT id AS identity, coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0) AS pruned_to
FROM eventkit_identity

-- name: ReadTaskNumbers
SELECT coalesce((SELECT min(id) FROM eventkit_task), 1) - 1, coalesce((SELECT max(id) FROM eventkit_task), 0)

-- name: FindTaskEnd
SELECT max(id), count(*)
FROM (SELECT id FROM eventkit_task WHERE id > :after AND id <= :last ORDER BY id LIMIT :most) AS tasks
