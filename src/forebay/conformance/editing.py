"""Checks of editing: a dead letter keeps another payload beside its own until it is purged."""

from forebay.conformance.fixtures import T0, a_job, dead, equal, finished, record, running, stored
from forebay.conformance.suite import check
from forebay.core.blobs import new_id
from forebay.core.job import Query
from forebay.core.lifecycle import State
from forebay.ports.broker import Broker

BLOB, OTHER = (new_id("", now=T0, chance=bytes([number]) * 16) for number in (5, 6))


def naming(blob: str) -> bytes:
    """Return a payload that names a blob."""
    return f'{{"$blob":"{blob}"}}'.encode()


@check
async def an_edit_is_kept_beside_the_payload_of_a_dead_job(broker: Broker) -> None:
    old = await dead(broker)
    before = await record(broker, old)
    equal(before.edited, None, "edited before")
    equal(await broker.edit(old, b'"mended"', now=T0), True, "answer")
    equal(await record(broker, old), before._replace(edited=b'"mended"'), "record")
    page = await broker.find(Query(limit=10, states=frozenset({State.DEAD})), now=T0)
    equal([one.edited for one in page.records], [b'"mended"'], "edited in a list")


@check
async def the_newest_edit_counts(broker: Broker) -> None:
    old, other = await dead(broker), await dead(broker)
    for payload in (b'"first"', b'"second"'):
        equal(await broker.edit(old, payload, now=T0), True, "answer")
    equal((await record(broker, old)).edited, b'"second"', "edited")
    equal((await record(broker, other)).edited, None, "edited of another")


@check
async def only_a_dead_job_can_be_edited(broker: Broker) -> None:
    done = await finished(broker)
    lease = await running(broker)
    waiting = await stored(broker)
    for job_id in (done, lease.job.id, waiting.id):
        equal(await broker.edit(job_id, b"1", now=T0), False, f"edit of {job_id!r}")
        equal((await record(broker, job_id)).edited, None, "edited")
    for job_id in ("00000000-0000-7000-8000-000000000000", ""):
        equal(await broker.edit(job_id, b"1", now=T0), False, f"edit of {job_id!r}")


@check
async def an_edit_stays_after_a_redrive_and_goes_with_the_dead_job(broker: Broker) -> None:
    old = await dead(broker)
    await broker.edit(old, b'"mended"', now=T0)
    job = a_job(broker, payload=b'"mended"')
    await broker.redrive(old, job, now=T0)
    equal((await record(broker, old)).edited, b'"mended"', "edited after the redrive")
    equal((await record(broker, job.id)).edited, None, "edited of the successor")
    await broker.purge([old], limit=10, now=T0)
    equal(await broker.edit(old, b"1", now=T0), False, "edit of a purged job")


@check
async def blobs_that_an_edit_names_are_held_until_it_is_replaced_or_purged(broker: Broker) -> None:
    old = await dead(broker)
    await broker.edit(old, naming(BLOB), now=T0)
    equal(await broker.held([BLOB, OTHER], now=T0), [True, False], "held")
    await broker.edit(old, naming(OTHER), now=T0)
    equal(await broker.held([BLOB, OTHER], now=T0), [False, True], "held after another edit")
    await broker.purge([old], limit=10, now=T0)
    equal(await broker.held([BLOB, OTHER], now=T0), [False, False], "held after the purge")
