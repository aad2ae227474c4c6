"""audit: recount a Shelf from its jobs and say where its indexes and counts disagree."""

from collections import Counter
from collections.abc import Iterator

from forebay.core.ledger_entry import Entry, TaskQueue
from forebay.core.ledger_index import Moment
from forebay.core.ledger_shelf import Shelf
from forebay.core.lifecycle import FINAL, WAITING, State
from forebay.core.tenant import Held

Comparison = tuple[str, object, object]  # what, as kept, as counted


def audit(shelf: Shelf, *, accepted: int, purged: int) -> list[str]:
    """Return one sentence for each disagreement, [] when sound. Costs O(n log n)."""
    entries = list(shelf.jobs.values())
    comparisons = [("accepted jobs", accepted, len(entries) + purged), *_indexes(shelf, entries)]
    for name, queue in shelf.queues.items():
        comparisons += _queue(shelf, queue, [e for e in entries if e.job.task == name])
    problems = [
        f"{what}: kept {_shown(kept)}, counted {_shown(counted)}"
        for what, kept, counted in comparisons
        if kept != counted
    ]
    return problems + [problem for entry in entries for problem in _entry(entry)]


def _indexes(shelf: Shelf, entries: list[Entry]) -> Iterator[Comparison]:
    waiting = [e for e in entries if e.state in WAITING]
    due = sorted((e.ready_at, e.job.id) for e in waiting if e.state is not State.QUEUED)
    ends = sorted((e.waits_until, e.job.id) for e in waiting if e.waits_until is not None)
    leases = sorted((e.lease_until, e.job.id) for e in entries if e.lease_until is not None)
    finals = sorted((e.gone_at, e.job.id) for e in entries if e.finished_at is not None)
    for what, heap, counted in (
        ("due", shelf.due, due),
        ("ends", shelf.ends, ends),
        ("leases", shelf.leases, leases),
        ("finals", shelf.finals, finals),
    ):
        yield what, heap.snapshot(), counted
        yield f"number of {what}", heap.live, len(counted)
    yield "ids", list(shelf.ids), sorted(shelf.jobs)
    keyed = (e.job for e in entries if e.job.idempotency_key is not None)
    named = {key: e.job.id for e in entries for key in e.keys}
    yield "keys", {key: job_id for key, (job_id, _) in shelf.keys.items()}, named
    own = {(job.tenant, job.idempotency_key) for job in keyed}
    twins: dict[bytes, list[str]] = {}
    for job_id in sorted(shelf.jobs):
        fingerprint = shelf.jobs[job_id].job.fingerprint
        if fingerprint is not None:
            twins.setdefault(fingerprint, []).append(job_id)
    yield "twins", shelf.twins.snapshot(), twins
    yield "own keys that mean nothing", own - shelf.keys.keys(), set[object]()
    chains: dict[tuple[str, str, str], list[str]] = {}
    for entry in sorted(entries, key=lambda entry: entry.job.id):
        if entry.chain is not None and entry.state not in FINAL:
            chains.setdefault(entry.chain, []).append(entry.job.id)
    yield "chains", {key: members for key, (members, _) in shelf.chains.snapshot().items()}, chains
    held: dict[str, Held] = {}
    for entry in entries:
        if entry.state not in FINAL:
            had = held.get(entry.job.tenant, Held())
            held[entry.job.tenant] = Held(had.jobs + 1, had.bytes + entry.job.size)
    yield "held", shelf.held, held
    yield "tasks without a queue", {e.job.task for e in entries} - shelf.queues.keys(), set[str]()


def _queue(shelf: Shelf, queue: TaskQueue, entries: list[Entry]) -> Iterator[Comparison]:
    queued = [e for e in entries if e.state is State.QUEUED]
    counts = Counter(e.state for e in entries)
    lines: dict[tuple[int, str], list[Moment]] = {}
    for entry in queued:
        if entry.chain is None or shelf.chains.head(entry.chain) == entry.job.id:
            key = queue.key(entry.job, entry.ready_at)
            lines.setdefault((entry.job.priority, entry.job.tenant), []).append(key)
    kept = {place[:2]: sorted([*place.line.order, *place.line.stale]) for place in queue.places()}
    ages = sorted((e.ready_at, e.job.id) for e in queued)
    yield f"counts of {queue.name}", queue.counts, {state: counts[state] for state in State}
    yield f"bytes of {queue.name}", queue.bytes, sum(e.job.size for e in entries if e.state not in FINAL)
    yield f"order of {queue.name}", kept, {key: sorted(line) for key, line in lines.items()}
    yield f"ages of {queue.name}", queue.ages.snapshot(), ages
    yield f"number of ages of {queue.name}", queue.ages.live, len(ages)


def _entry(entry: Entry) -> Iterator[str]:
    what = f"{entry.job.id} is {entry.state.value}"
    if (entry.lease_until is None) == (entry.state is State.RUNNING):
        yield f"{what} with lease_until {entry.lease_until!r}"
    if (entry.finished_at is None) == (entry.state in FINAL):
        yield f"{what} with finished_at {entry.finished_at!r}"
    if entry.output is not None and entry.state is not State.SUCCEEDED:
        yield f"{what} with an output"
    if not 0 <= entry.attempt <= max(entry.job.attempts_max, 1):
        yield f"{what} with {entry.attempt} attempts of {entry.job.attempts_max}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"
