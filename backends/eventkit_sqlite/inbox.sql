-- Message ids that consumers have seen.

-- Of two transactions with the same message, the second waits for the end of the first.
-- name: See
INSERT INTO eventkit_inbox (consumer, message_id)
VALUES (:consumer, :message_id)
ON CONFLICT (consumer, message_id) DO NOTHING
RETURNING 1

-- name: PruneInbox
DELETE FROM eventkit_inbox
WHERE consumer = :consumer AND seen_at <= :now - :older_than
RETURNING 1
