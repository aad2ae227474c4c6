"""Choosing: the statements by which a lease finds what it may take, and takes it."""

from typing import Final

from forebay.brokers.postgres.rows import columns
from forebay.brokers.postgres.schema import COUNTED_SQL, QUEUED, RUNNING, STATE_SQL
from forebay.core.turns import NO_DEADLINE_S, Order

# A queued job of a chain that may not go, since another one of it runs.
_STANDS: Final = (
    "EXISTS (SELECT 1 FROM jobs r WHERE r.task = {j}.task AND r.tenant = {j}.tenant"
    f" AND r.ordering_key = {{j}}.ordering_key AND r.ordering_key IS NOT NULL AND r.state = {RUNNING})"
)
# The least id of a chain. (Between two ends that are the same: see _FIND_TWINS.)
FIRST_SQL: Final = (
    "(SELECT o.id FROM jobs o WHERE o.task = j.task AND o.tenant = j.tenant"
    " AND o.ordering_key BETWEEN j.ordering_key AND j.ordering_key AND o.ordering_key IS NOT NULL"
    " AND o.finished_at IS NULL ORDER BY o.ordering_key, o.id LIMIT 1)"
)
# Of one ordering key only the head may go: what runs, else the least id. Both are looked for at their places:
# a chain may be long.
HEAD_SQL: Final = f"(j.ordering_key IS NULL OR (j.id = {FIRST_SQL} AND NOT {_STANDS.format(j='j')}))"
# The first of each chain of a task, from chain to chain, and whether it may go.
HEADS: Final = (
    "WITH RECURSIVE heads AS ((SELECT task, tenant, ordering_key, id, 1 AS place FROM jobs WHERE task = %s"
    " AND ordering_key IS NOT NULL AND finished_at IS NULL ORDER BY tenant, ordering_key, id LIMIT 1)"
    " UNION ALL SELECT f.task, f.tenant, f.ordering_key, f.id, h.place + 1 FROM heads h CROSS JOIN LATERAL ("
    "SELECT * FROM jobs n WHERE n.task = h.task AND n.ordering_key IS NOT NULL AND n.finished_at IS NULL"
    " AND (n.tenant, n.ordering_key) > (h.tenant, h.ordering_key)"
    " ORDER BY n.tenant, n.ordering_key, n.id LIMIT 1) f WHERE h.place < %s)"
    f" SELECT h.id::text, NOT {_STANDS.format(j='h')} FROM heads h"
)
AMONG_SQL: Final = "(j.ordering_key IS NULL OR j.id = ANY(%s::uuid[]))"
# Whether a task has chains. The order keeps to the index of chains whatever the statistics say: else all jobs
# are gone through in search of one, where the statistics are of a moment when most of them were in chains.
_CHAINED: Final = (
    "((SELECT id FROM jobs WHERE task = %s AND ordering_key IS NOT NULL AND finished_at IS NULL"
    " ORDER BY tenant, ordering_key, id LIMIT 1) IS NOT NULL)"
)
# What a task has, before anything is locked.
LINES: Final = (
    "SELECT coalesce((SELECT paused FROM taps WHERE task = %s), false),"
    f" {_CHAINED},"
    " t.priority, t.tenant, t.state, sum(t.jobs)::int8 FROM tallies t WHERE t.task = %s"
    f" AND {COUNTED_SQL} AND t.state IN ({QUEUED}, {RUNNING})"
    " GROUP BY t.priority, t.tenant, t.state HAVING sum(t.jobs) > 0"
)
AT: Final = {
    Order.ARRIVAL: "j.ready_at",
    Order.DEADLINE: f"coalesce(j.deadline_at, j.ready_at + {NO_DEADLINE_S})",
}
# Nothing is locked yet: whoever asks meanwhile must find what is left here.
CANDIDATES: Final = (
    "SELECT l.priority, l.tenant, c.at, c.id::text, c.ordering_key"
    " FROM unnest(%s::int2[], %s::text[]) AS l(priority, tenant) CROSS JOIN LATERAL ("
    "SELECT {at} AS at, j.id, j.ordering_key FROM jobs j"
    f" WHERE j.task = %s AND j.state = {QUEUED} AND j.priority = l.priority AND j.tenant = l.tenant"
    f" AND (j.waits_until IS NULL OR j.waits_until > %s) AND j.id::text <> ALL(%s::text[]) AND {{head}}"
    " ORDER BY {at}, j.id LIMIT %s) AS c"
)
# The chains that nobody else is about to grant a job of.
TRY_LOCK: Final = "SELECT n FROM unnest(%s::int8[]) AS u(n) WHERE pg_try_advisory_xact_lock(n)"
STILL_HEADS: Final = f"SELECT j.id::text FROM jobs j WHERE j.id = ANY(%s::uuid[]) AND {HEAD_SQL}"
_SET: Final = (
    f"SET state = {RUNNING}, attempt = j.attempt + 1, fence = j.fence + 1, worker = %s, started_at = %s,"
    " lease_until = %s, progress = NULL"
)
GRANT: Final = (
    "WITH chosen AS MATERIALIZED (SELECT j.id FROM jobs j WHERE j.id = ANY(%s::uuid[])"
    f" AND {STATE_SQL} = {QUEUED} AND j.task = %s FOR UPDATE SKIP LOCKED)"
    f" UPDATE jobs j {_SET} WHERE j.id = ANY(ARRAY(SELECT id FROM chosen))"
    f" RETURNING {columns('j', output=False)}"
)
# The one line of nearly every task: chosen, locked and granted in one statement. What was chosen is gone to
# by its ids: joined, all jobs might be gone through where the statistics expect many to be chosen.
GRANT_LINE: Final = (
    "WITH chosen AS MATERIALIZED (SELECT j.id FROM jobs j WHERE j.task = %s AND j.priority = %s"
    f" AND j.tenant = %s AND j.state = {QUEUED} AND (j.waits_until IS NULL OR j.waits_until > %s)"
    " ORDER BY {at}, j.id LIMIT %s FOR UPDATE SKIP LOCKED)"
    f" UPDATE jobs j {_SET} WHERE j.id = ANY(ARRAY(SELECT id FROM chosen))"
    f" RETURNING {columns('j', output=False)}"
)
RUNNING_OF: Final = (
    "SELECT tenant, sum(jobs)::int8 FROM tallies"
    f" WHERE {COUNTED_SQL} AND state = {RUNNING} AND tenant = ANY(%s::text[]) GROUP BY 1 HAVING sum(jobs) > 0"
)

# All of a lease where one line waits, without chains: as a transaction by itself. `most` is -1 where it takes
# more than that; nothing is done then.
GRANT_ALONE: Final = (
    "WITH at AS MATERIALIZED (SELECT {clock} AS now),"
    " lines AS MATERIALIZED (SELECT priority, tenant, sum(jobs)::int8 AS jobs FROM tallies WHERE task = %s"
    f" AND {COUNTED_SQL} AND state = {QUEUED} GROUP BY 1, 2 HAVING sum(jobs) > 0),"
    f" free AS MATERIALIZED (SELECT CASE WHEN (SELECT count(*) FROM lines) > 1 OR {_CHAINED} THEN -1"
    " WHEN coalesce((SELECT paused FROM taps WHERE task = %s), false) THEN 0 ELSE 1 END AS most),"
    f" chosen AS MATERIALIZED (SELECT j.id FROM jobs j WHERE (SELECT most FROM free) > 0 AND j.task = %s"
    " AND j.priority = (SELECT priority FROM lines LIMIT 1) AND j.tenant = (SELECT tenant FROM lines LIMIT 1)"
    f" AND j.state = {QUEUED} AND (j.waits_until IS NULL OR j.waits_until > (SELECT now FROM at))"
    " ORDER BY {at}, j.id LIMIT %s FOR UPDATE SKIP LOCKED),"
    f" taken AS (UPDATE jobs j SET state = {RUNNING}, attempt = j.attempt + 1, fence = j.fence + 1,"
    " worker = %s, started_at = at.now, lease_until = at.now + %s::float8, progress = NULL FROM at"
    f" WHERE j.id = ANY(ARRAY(SELECT id FROM chosen)) AND {STATE_SQL} = {QUEUED}"
    f" RETURNING {columns('j', output=False)})"
    " SELECT free.most, at.now, (SELECT sum(jobs)::int8 FROM lines), taken.* FROM free CROSS JOIN at"
    " LEFT JOIN taken ON true"
)
