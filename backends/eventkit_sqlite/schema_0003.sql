-- The changes of revision 0003.  Statements are separated by blank lines.

-- Consumer groups.  A member reads the keys of all events from the index, and loads those of its partitions.

DROP INDEX eventkit_event_topic

CREATE INDEX eventkit_event_topic ON eventkit_event (topic, id, key)

ALTER TABLE eventkit_consumer_lease ADD COLUMN paused INTEGER NOT NULL DEFAULT 0

CREATE TABLE eventkit_consumer_group (
    topic TEXT NOT NULL,
    name TEXT NOT NULL,
    partitions INTEGER NOT NULL,
    max_parked INTEGER NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, name)
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_consumer_partition (
    topic TEXT NOT NULL,
    name TEXT NOT NULL,
    partition INTEGER NOT NULL,
    position INTEGER NOT NULL,
    token INTEGER,
    stopped INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, name, partition)
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_consumer_parked (
    topic TEXT NOT NULL,
    name TEXT NOT NULL,
    event INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    key TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    due INTEGER,
    PRIMARY KEY (topic, name, event)
) WITHOUT ROWID, STRICT
