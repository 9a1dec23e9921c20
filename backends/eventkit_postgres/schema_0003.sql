-- The changes of revision 0003.  Statements are separated by blank lines.

-- Consumer groups.  A member reads the keys of all events from the index, and loads those of its partitions.

DROP INDEX eventkit_event_topic

CREATE INDEX eventkit_event_topic ON eventkit_event (topic, id, key)

ALTER TABLE eventkit_consumer_lease ADD COLUMN paused boolean NOT NULL DEFAULT false

CREATE TABLE eventkit_consumer_group (
    topic text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    partitions integer NOT NULL,
    max_parked integer NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    generation bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE TABLE eventkit_consumer_partition (
    topic text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    position bigint NOT NULL,
    token bigint,
    stopped boolean NOT NULL DEFAULT false,
    PRIMARY KEY (topic, name, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

CREATE TABLE eventkit_consumer_parked (
    topic text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    event bigint NOT NULL,
    partition integer NOT NULL,
    key text,
    attempt integer NOT NULL DEFAULT 0,
    due timestamptz,
    PRIMARY KEY (topic, name, event)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)
