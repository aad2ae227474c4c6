"""Schema: every object of the store, and how an older one becomes the newest. Forward only."""

from typing import Final

# Numbers in the tables: never change one, add at the end.
SCHEDULED, QUEUED, RUNNING, RETRYING, SUCCEEDED, DEAD, CANCELLED, EXPIRED = range(8)
WAITING_SQL: Final = f"({SCHEDULED}, {QUEUED}, {RETRYING})"
# The state of jobs that a statement finds by their ids or keys, in a shape that no partial index answers:
# else it goes along all that run or are queued, where the statistics are of a moment when hardly any were.
STATE_SQL: Final = "(j.state + 0)"
# The differences that count.
COUNTED_SQL: Final = "n > (SELECT summed FROM meta)"
# Where a listing begins that goes on behind nothing: in one form for both, since a plan made for either finds
# the place of a page by its id.
NEWEST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
OLDEST: Final = "00000000-0000-0000-0000-000000000000"
OPEN_SQL: Final = f"({SCHEDULED}, {QUEUED}, {RUNNING}, {RETRYING})"

# Counts are kept as differences: each statement that changes jobs adds a few rows, and the sum is the count.
# So no two transactions ever wait for one counter, and whoever writes to `jobs` by whatever way is counted.
_FIRST: Final = f"""
CREATE TABLE jobs (
    id uuid PRIMARY KEY,
    task text NOT NULL,
    payload bytea NOT NULL,
    created_at float8 NOT NULL,
    run_at float8 NOT NULL,
    priority int2 NOT NULL,
    attempts_max int4 NOT NULL,
    expires_at float8,
    deadline_at float8,
    tenant text NOT NULL,
    idempotency_key bytea,
    body_hash bytea NOT NULL,
    metadata bytea NOT NULL,
    redriven_from text,
    version text NOT NULL,
    ordering_key bytea,
    callback_url text,
    fingerprint bytea,
    cache_s float8 NOT NULL,
    state int2 NOT NULL,
    attempt int4 NOT NULL DEFAULT 0,
    fence int8 NOT NULL DEFAULT 0,
    deaths int4 NOT NULL DEFAULT 0,
    releases int4 NOT NULL DEFAULT 0,
    suspect bool NOT NULL DEFAULT false,
    cancel_requested bool NOT NULL DEFAULT false,
    ready_at float8 NOT NULL,
    lease_until float8,
    worker text NOT NULL DEFAULT '',
    started_at float8,
    finished_at float8,
    output bytea,
    error bytea,
    progress bytea,
    attempts bytea,
    checkpoint bytea,
    degraded int2 NOT NULL DEFAULT 0,
    cancel_at float8,
    redriven_as uuid,
    edited bytea,
    waits_until float8,
    size int8 NOT NULL,
    marked bool NOT NULL DEFAULT false -- its checkpoint names blobs
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX jobs_ready ON jobs (task, priority, tenant, ready_at, id) WHERE state = {QUEUED};
CREATE INDEX jobs_due ON jobs (ready_at, id) WHERE state IN ({SCHEDULED}, {RETRYING});
CREATE INDEX jobs_ends ON jobs (waits_until, id) WHERE waits_until IS NOT NULL AND state IN {WAITING_SQL};
CREATE INDEX jobs_leases ON jobs (lease_until, id) WHERE state = {RUNNING};
CREATE INDEX jobs_finals ON jobs (task, (state = {DEAD}), finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_chains ON jobs (task, tenant, ordering_key, id)
    WHERE ordering_key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_twins ON jobs (fingerprint, id) WHERE fingerprint IS NOT NULL;

CREATE TABLE keys (
    tenant text NOT NULL, key bytea NOT NULL, job_id uuid NOT NULL, body_hash bytea NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX keys_jobs ON keys (job_id);

CREATE TABLE tallies (
    task text NOT NULL, tenant text NOT NULL, priority int2 NOT NULL, state int2 NOT NULL,
    jobs int8 NOT NULL, bytes int8 NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);
CREATE INDEX tallies_task ON tallies (task);

CREATE FUNCTION tally() RETURNS trigger LANGUAGE plpgsql AS $tally$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO SCHEMA.tallies
        SELECT task, tenant, priority, state, count(*), sum(size) FROM entered GROUP BY 1, 2, 3, 4;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO SCHEMA.tallies
        SELECT task, tenant, priority, state, -count(*), -sum(size) FROM gone GROUP BY 1, 2, 3, 4;
    ELSE
        INSERT INTO SCHEMA.tallies
        SELECT task, tenant, priority, state, sum(more), sum(more * size) FROM (
            SELECT task, tenant, priority, state, 1 AS more, size FROM entered
            UNION ALL SELECT task, tenant, priority, state, -1, size FROM gone
        ) AS moved GROUP BY 1, 2, 3, 4 HAVING sum(more) <> 0 OR sum(more * size) <> 0;
    END IF;
    RETURN NULL;
END $tally$;
CREATE TRIGGER tally_in AFTER INSERT ON jobs
    REFERENCING NEW TABLE AS entered FOR EACH STATEMENT EXECUTE FUNCTION tally();
CREATE TRIGGER tally_out AFTER DELETE ON jobs
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION tally();
CREATE TRIGGER tally_on AFTER UPDATE ON jobs
    REFERENCING OLD TABLE AS gone NEW TABLE AS entered FOR EACH STATEMENT EXECUTE FUNCTION tally();

CREATE TABLE taps (
    task text PRIMARY KEY, paused bool NOT NULL DEFAULT false, draining bool NOT NULL DEFAULT false
);

CREATE TABLE links ( -- which job names which blob, and in what: p(ayload), o(utput), e(dit), c(heckpoint)
    blob text NOT NULL, job_id uuid NOT NULL, place "char" NOT NULL, PRIMARY KEY (blob, job_id, place)
);
CREATE INDEX links_jobs ON links (job_id);

CREATE TABLE deliveries (
    job_id uuid PRIMARY KEY, url text NOT NULL, endpoint text NOT NULL, state int2 NOT NULL,
    tries int4 NOT NULL, since float8 NOT NULL, due_at float8, before int4 NOT NULL DEFAULT 0,
    ended_at float8, log bytea
);
CREATE INDEX deliveries_due ON deliveries (due_at, job_id) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_endpoints ON deliveries (endpoint, due_at, job_id) WHERE due_at IS NOT NULL;

CREATE TABLE deadly (
    task text NOT NULL, fingerprint bytea NOT NULL, version text NOT NULL, tenant text NOT NULL,
    deaths int4 NOT NULL, job_id text NOT NULL, since float8 NOT NULL, at float8 NOT NULL,
    condemned_at float8,
    PRIMARY KEY (task, fingerprint)
);

CREATE TABLE marks (
    name text PRIMARY KEY, "when" text NOT NULL, due_at float8 NOT NULL, paused bool NOT NULL, job_id text,
    job_due_at float8, skipped text NOT NULL
);

CREATE TABLE purged (id uuid PRIMARY KEY, tenant text NOT NULL, at float8 NOT NULL);
CREATE INDEX purged_at ON purged (at);
"""

# Who works here. Gone after a crash of the server: everybody tells again within a second.
_SECOND: Final = """
CREATE UNLOGGED TABLE nodes (node text PRIMARY KEY, at float8 NOT NULL, document bytea NOT NULL)
    WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);
"""

# The store that was moved here, and since when all of it is here.
_THIRD: Final = """
CREATE TABLE origins (name text PRIMARY KEY, done_at float8);
"""

# What tells the ids of jobs that were removed from that store before it was moved.
_FOURTH: Final = """
ALTER TABLE origins ADD COLUMN secret bytea, ADD COLUMN upto int8;
"""

# What the processes of a store share and nobody else knows.
_FIFTH: Final = """
CREATE TABLE secrets (name text PRIMARY KEY, secret bytea NOT NULL);
"""

# Up to where the differences were summed up: nobody reads those again. They cannot be taken out while any old
# transaction is open on the server, a backup for example, and there may be a million of them by then.
# And what of chains runs.
# The locks are taken in the order in which those who write take them.
_SIXTH: Final = f"""
LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE;
LOCK TABLE tallies IN ACCESS EXCLUSIVE MODE;
ALTER TABLE tallies ADD COLUMN n int8 GENERATED BY DEFAULT AS IDENTITY;
CREATE INDEX tallies_n ON tallies (n);
DROP INDEX tallies_task;
ALTER TABLE meta ADD COLUMN summed int8 NOT NULL DEFAULT 0;
CREATE INDEX jobs_chained ON jobs (task, tenant, ordering_key)
    WHERE ordering_key IS NOT NULL AND state = {RUNNING};
"""

# Step n makes version n + 1 of version n.
STEPS: Final = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH)
VERSION: Final = len(STEPS)


def steps_from(version: int, schema: str) -> str:
    """Return the statements that make the newest version of this one."""
    return "".join(STEPS[version:]).replace("SCHEMA.", f'"{schema}".')
