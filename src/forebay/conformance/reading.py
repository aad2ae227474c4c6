"""Checks of reading: listings, depth, positions, names of tasks, retention and purge."""

from typing import Any

from forebay.conformance.fixtures import (
    PAGES_MAX,
    POLICY,
    T0,
    TASK,
    a_job,
    committed,
    dead,
    equal,
    failure,
    finished,
    in_state,
    leased,
    leased_ids,
    running,
    stored,
    walk,
)
from forebay.conformance.suite import check, needs
from forebay.core import settle
from forebay.core.job import CancelVerdict, Depth, Line, Query
from forebay.core.lifecycle import FINAL, State
from forebay.ports.broker import Broker


def _newest_first(ids: list[str]) -> list[str]:
    return sorted(ids, reverse=True)


@check
async def pages_hold_every_job_once_newest_first(broker: Broker) -> None:
    equal(await walk(broker, Query()), [], "an empty store")
    ids = [(await stored(broker, now=T0 + n)).id for n in range(23)]
    for limit in (1, 2, 22, 23, 24, 100):
        equal(await walk(broker, Query(limit=limit), now=T0 + 99), _newest_first(ids), f"pages of {limit}")


@check
async def jobs_that_arrive_meanwhile_do_not_shift_the_pages(broker: Broker) -> None:
    ids = [(await stored(broker, now=T0 + n)).id for n in range(12)]
    found: list[str] = []
    query = Query(limit=5)
    for step in range(PAGES_MAX):
        page = await broker.find(query, now=T0 + 50 + step)
        found += [each.job.id for each in page.records]
        if page.next_after is None:
            break
        query = query._replace(after=page.next_after)
        await stored(broker, now=T0 + 50 + step)
    equal(found, _newest_first(ids), "jobs on the pages")


@check
async def listings_filter_by_task_state_tenant_and_metadata(broker: Broker) -> None:
    done = await finished(broker, task="a", tenant="x", metadata=b'{"page":"1","kind":"scan"}')
    letter = await dead(broker, task="a", tenant="y")
    queued = await stored(broker, task="a", tenant="x", metadata=b'{"page":"2","kind":"scan"}')
    lease = await running(broker, task="b", tenant="x", metadata=b'{"kind":"scan","page":"1"}')
    later = await stored(broker, task="b", run_at=T0 + 60)
    every = [done, letter, queued.id, lease.job.id, later.id]
    expected: list[tuple[Query, list[str]]] = [
        (Query(), every),
        (Query(task="a"), [done, letter, queued.id]),
        (Query(task="never"), []),
        (Query(states=frozenset({State.QUEUED, State.DEAD})), [letter, queued.id]),
        (Query(states=FINAL), [done, letter]),
        (Query(states=frozenset()), []),
        (Query(tenant="x"), [done, queued.id, lease.job.id]),
        (Query(tenant=""), [later.id]),
        (Query(metadata=(("page", "1"),)), [done, lease.job.id]),
        (Query(metadata=(("page", "1"), ("kind", "scan"))), [done, lease.job.id]),
        (Query(metadata=(("page", "1"), ("kind", "photo"))), []),
        (Query(metadata=(("nothing", ""),)), []),
        (Query(task="a", tenant="x", states=FINAL, metadata=(("kind", "scan"),)), [done]),
    ]
    for query, ids in expected:
        for limit in (1, 50):
            equal(await walk(broker, query._replace(limit=limit)), _newest_first(ids), repr(query))


@check
async def metadata_is_matched_as_text_whatever_its_names_are(broker: Broker) -> None:
    names = '{"a.b\\"c":"1","$":"2","[0]":"3","ключ":"\\ud83e\\udd8a","e":"",'
    values = '"n":7,"t":true,"z":null,"o":{"p":"q"}}'
    job = await stored(broker, metadata=(names + values).encode())
    await stored(broker, metadata=b"{}")
    await stored(broker)
    held = [('a.b"c', "1"), ("$", "2"), ("[0]", "3"), ("ключ", "\U0001f98a"), ("e", "")]
    for pair in (*held, ("n", "7"), ("t", "true"), ("z", "null")):
        equal(await walk(broker, Query(metadata=(pair,))), [job.id], repr(pair))
    others = [("a", "1"), ("e", "null"), ("o.p", "q"), ("p", "q"), ("n", "07"), ("%", "2"), ('A.B"C', "1")]
    for pair in others:
        equal(await walk(broker, Query(metadata=(pair,))), [], repr(pair))


@check
async def a_listing_that_finds_little_ends_its_pages_early(broker: Broker) -> None:
    rare = [(await stored(broker, now=T0 + n, tenant="rare" if n % 10 == 0 else "")).id for n in range(40)]
    query = Query(tenant="rare", limit=3, window_max=7)
    equal(await walk(broker, query, now=T0 + 99), _newest_first(rare[::10]), "found")


@check
async def depth_counts_every_state_and_the_bytes_of_open_jobs(broker: Broker) -> None:
    equal(await broker.depth(TASK, now=T0), Depth(), "a task never seen")
    sizes: dict[str, Any] = {"payload": b"x" * 100, "metadata": b'{"a":"b"}'}
    await finished(broker, **sizes)
    await dead(broker, **sizes)
    retrying = await running(broker, **sizes)
    await committed(broker, failure(retrying, now=T0), now=T0)
    await running(broker, **sizes)
    await stored(broker, run_at=T0 + 60, **sizes)
    await stored(broker, now=T0 + 1, run_at=T0 - 3, **sizes)
    await stored(broker, now=T0 + 1, priority=0, **sizes)
    await stored(broker, task="other", **sizes)
    expected = Depth(
        queued=2,
        scheduled=1,
        retrying=1,
        running=1,
        bytes=5 * 109,
        oldest_at=T0 - 3,
        dead=1,
        lines=(Line(0, 1, T0 + 1), Line(5, 1, T0 - 3)),
    )
    equal(await broker.depth(TASK, now=T0 + 1), expected, "depth")
    equal(expected.open, 5, "open")


@check
async def depth_tells_of_each_priority_how_many_wait_and_since_when(broker: Broker) -> None:
    await broker.enqueue(
        [a_job(broker, at=T0 + n, priority=n % 3 * 4, tenant=f"t{n}") for n in range(9)], now=T0 + 9
    )
    lines = (Line(0, 3, T0), Line(4, 3, T0 + 1), Line(8, 3, T0 + 2))
    equal((await broker.depth(TASK, now=T0 + 9)).lines, lines, "lines")
    await leased(broker, limit=3, now=T0 + 9)
    equal((await broker.depth(TASK, now=T0 + 9)).lines, lines[1:], "lines when the urgent ones run")


@check
async def a_listing_of_one_tenant_finds_what_waits_for_its_key_behind_jobs_of_others(broker: Broker) -> None:
    ours = [(await stored(broker, now=T0 + n, tenant="x", ordering_key="k")).id for n in range(2)]
    for n in range(2, 9):
        await stored(broker, now=T0 + n, tenant="y", ordering_key="k")
    for limit in (1, 3, 20):
        query = Query(tenant="x", states=frozenset({State.QUEUED}), limit=limit)
        equal(await walk(broker, query, now=T0 + 9), _newest_first(ours), f"pages of {limit}")


@check
async def depth_leaves_out_of_its_lines_what_waits_for_its_ordering_key(broker: Broker) -> None:
    for n in range(3):
        await stored(broker, now=T0 + n, ordering_key="k")
    depth = await broker.depth(TASK, now=T0 + 9)
    equal((depth.queued, depth.lines), (3, (Line(5, 1, T0),)), "queued and lines")


@check
@needs("given_time")
async def depth_forgets_what_has_gone(broker: Broker) -> None:
    for end in ("complete", "cancel", "expire", "kill"):
        job = await stored(broker, payload=b"x" * 50, expires_at=T0 + 5 if end == "expire" else None)
        if end == "cancel":
            await broker.cancel([job.id], now=T0)
        elif end == "expire":
            await broker.sweep(limit=10, now=T0 + 5)
        else:
            lease = (await leased(broker))[0]
            done, killed = settle.complete(lease, output=b"1", now=T0), failure(lease, now=T0, permanent=True)
            await committed(broker, done if end == "complete" else killed, now=T0)
        expected = Depth(dead=1 if end == "kill" else 0)
        equal(await broker.depth(TASK, now=T0 + 5), expected, f"depth after {end}")


@check
async def depth_counts_a_dead_letter_until_it_is_purged(broker: Broker) -> None:
    letter = await dead(broker)
    await broker.redrive(letter, a_job(broker, run_at=T0 + 60), now=T0)
    equal((await broker.depth(TASK, now=T0)).dead, 1, "dead after a redrive")
    await broker.purge([letter], limit=1, now=T0)
    equal((await broker.depth(TASK, now=T0)).dead, 0, "dead after the purge")


@check
async def depth_at_once_agrees_when_nothing_is_on_its_way(broker: Broker) -> None:
    for number in range(5):
        await stored(broker, payload=b"x" * number)
    await broker.cancel([(await stored(broker)).id], now=T0)
    await leased(broker, limit=2)
    at_once = broker.depth_now(TASK, now=T0)
    if at_once is not None:
        equal(at_once, await broker.depth(TASK, now=T0), "depth_now")


@check
async def oldest_is_the_longest_ready_of_the_queued_jobs(broker: Broker) -> None:
    await stored(broker, run_at=T0 + 60)
    oldest = await stored(broker, run_at=T0 - 30, priority=9)
    urgent = await stored(broker, run_at=T0 - 10, priority=0)
    equal((await broker.depth(TASK, now=T0)).oldest_at, T0 - 30, "oldest_at")
    await broker.cancel([oldest.id], now=T0)
    equal((await broker.depth(TASK, now=T0)).oldest_at, T0 - 10, "oldest_at after it went")
    lease = (await leased(broker))[0]
    equal((lease.job.id, (await broker.depth(TASK, now=T0)).oldest_at), (urgent.id, None), "none queued")
    await committed(broker, settle.release(lease, policy=POLICY, now=T0 + 5), now=T0 + 5)
    equal((await broker.depth(TASK, now=T0 + 5)).oldest_at, T0 - 10, "oldest_at after a hand-back")


@check
@needs("ordered")
async def positions_are_the_order_in_which_jobs_are_leased(broker: Broker) -> None:
    jobs = [await stored(broker, priority=(n * 7) % 10, run_at=T0 - (n * 37) % 300) for n in range(40)]
    await stored(broker, task="other")
    later = await stored(broker, run_at=T0 + 60)
    places = {await broker.position(job.id, now=T0): job.id for job in jobs}
    equal(sorted(place or 0 for place in places), list(range(1, 41)), "places")
    equal(await broker.position(later.id, now=T0), None, "position of a scheduled job")
    first = await leased_ids(broker, limit=15)
    equal(first, [places[place] for place in range(1, 16)], "leased in the order of the places")
    equal(await broker.position(first[0], now=T0), None, "position of a running job")
    equal(await broker.position(places[16], now=T0), 1, "position after 15 were leased")
    await broker.cancel([places[16]], now=T0)
    equal(await broker.position(places[16], now=T0), None, "position of a cancelled job")
    equal(await broker.position(places[17], now=T0), 1, "position after one more was cancelled")
    await broker.pause(TASK, paused=True, now=T0)
    equal(await broker.position(places[18], now=T0), 2, "position while paused")
    equal(await broker.position("00000000-0000-7000-8000-000000000000", now=T0), None, "unknown")


@check
async def tasks_are_those_with_jobs_paused_or_draining(broker: Broker) -> None:
    equal(await broker.tasks(), [], "none")
    done = await finished(broker, task="b")
    await stored(broker, task="a")
    await broker.pause("c", paused=True, now=T0)
    equal(await broker.depth("never", now=T0), Depth(), "a task that was only asked for")
    await broker.drain("d", draining=True, now=T0)
    equal(await broker.tasks(), ["a", "b", "c", "d"], "tasks")
    await broker.pause("c", paused=False, now=T0)
    await broker.drain("d", draining=False, now=T0)
    await broker.drain("never", draining=False, now=T0)
    await broker.purge([done], limit=1, now=T0)
    equal(await broker.tasks(), ["a"], "tasks after the others went")


@check
async def what_was_never_stored_is_not_there(broker: Broker) -> None:
    await stored(broker)
    nil = "00000000-0000-7000-8000-000000000000"
    for job_id in (nil, "", "no id", "x" * 10_000, "\U0001f98a", broker.new_id(T0)):
        equal(await broker.get(job_id, now=T0), None, f"get {job_id[:40]!r}")
        equal(await broker.position(job_id, now=T0), None, f"position {job_id[:40]!r}")
        equal(await broker.purge([job_id], limit=1, now=T0), 0, f"purge {job_id[:40]!r}")
        if len(job_id) != 36:
            equal(await broker.was_purged(job_id, now=T0), False, f"was_purged {job_id[:40]!r}")


@check
async def an_id_that_is_nearly_right_is_not_there(broker: Broker) -> None:
    job = await stored(broker)
    last = "0" if job.id[-1] != "0" else "1"
    for job_id in (job.id[:-1] + last, job.id.upper(), f" {job.id}", f"{job.id} ", job.id.replace("-", "")):
        if job_id != job.id:
            equal(await broker.get(job_id, now=T0), None, f"get {job_id!r}")
            equal(await broker.cancel([job_id], now=T0), [CancelVerdict.UNKNOWN], f"cancel {job_id!r}")
    await in_state(broker, job.id, State.QUEUED)


@check
async def nobody_has_a_place_before_the_first(broker: Broker) -> None:
    job = await stored(broker)
    await leased(broker)
    place = broker.place_now(job, now=T0)
    equal(place is None or place >= 1, True, f"the place {place} of what runs already")
