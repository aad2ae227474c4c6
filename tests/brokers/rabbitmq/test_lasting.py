"""One queue's trouble is that queue's alone: the connection that all tasks share stays, and holds no more than before."""

import asyncio
import contextlib

import aio_pika
import pytest

from forebay.brokers.rabbitmq import RabbitTransport, alive, line, session
from forebay.conformance.hinting import bodies, received, same
from forebay.errors import DeliveryUnavailableError
from tests.brokers.rabbitmq.test_relay import relayed
from tests.brokers.relay.test_relay import Worker, clock, submit, until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]
WAIT_MAX_S = 60.0
SHORT_OF_MEMORY, PLENTY = "0.000001", "0.8"


def life(rabbit, prefix, body, **more):
    """Run a test with one transport, whose session must be the same at its end."""

    async def run():
        transport = await RabbitTransport.open(rabbit.url(prefix=prefix, **more))
        begun = transport._session
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                await body(transport)
            assert transport._session is begun and begun.usable, "the connection was given up"
        finally:
            for task in ("echo", "other"):
                with contextlib.suppress(DeliveryUnavailableError):
                    await transport.forget(task)
            await transport.close()

    asyncio.run(run())


@contextlib.asynccontextmanager
async def channel_of(rabbit):
    connection = await aio_pika.connect(rabbit.url())
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def refused(verb):
    with pytest.raises(DeliveryUnavailableError) as caught:
        await verb
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("arguments", [{}, {"x-max-length": 5}, {"x-queue-type": "quorum"}], ids=str)
def test_queues_that_somebody_made_otherwise_are_used_as_they_are(rabbit, arguments):
    async def body(transport):
        async with channel_of(rabbit) as channel:
            for name in ("otherwise.echo", "otherwise:dead.echo"):
                await channel.declare_queue(name, durable=True, arguments=arguments)
        await transport.send("other", bodies(1))
        await transport.send("echo", bodies(3))
        await transport.bury("echo", bodies(1))
        hints = await received(transport, "echo", 3)
        await transport.ack("echo", hints)
        assert await transport.depth("echo") == 0
        same(await received(transport, "other", 1), bodies(1), "what another task has")

    life(rabbit, "otherwise", body)


def test_a_bound_of_dead_letters_that_changes_costs_nobody_the_connection(rabbit):
    async def first(transport):
        await transport.bury("echo", bodies(1))

    async def second(transport):
        await transport.bury("echo", bodies(1))
        async with channel_of(rabbit) as channel:
            dead = await channel.declare_queue("bound:dead.echo", passive=True)
            assert dead.declaration_result.message_count == 2

    async def run():
        transport = await RabbitTransport.open(rabbit.url(prefix="bound", dead_max=5))
        await first(transport)
        await transport.close()

    asyncio.run(run())
    life(rabbit, "bound", second, dead_max=7)


def test_a_queue_that_is_somebody_elses_alone_is_told_and_other_tasks_go_on(rabbit):
    async def body(transport):
        async with channel_of(rabbit) as channel:
            await channel.declare_queue("taken.echo", exclusive=True)
            assert "'taken.echo' cannot be used: RESOURCE_LOCKED" in await refused(
                transport.send("echo", [b"x"])
            )
            assert "RESOURCE_LOCKED" in await refused(transport.receive("echo", limit=1, wait_s=0.1))
            assert "RESOURCE_LOCKED" in await refused(transport.depth("echo"))
            await transport.send("other", bodies(2))
            same(await received(transport, "other", 2), bodies(2), "what another task has")
        await transport.send("echo", bodies(1))

    life(rabbit, "taken", body)


@pytest.mark.parametrize("verb", ["depth", "receive", "send", "bury"])
def test_who_is_cancelled_anywhere_in_a_verb_costs_nobody_the_connection(rabbit, verb):
    async def body(transport):
        verbs = {
            "depth": transport.depth,
            "receive": lambda task: transport.receive(task, limit=1, wait_s=5.0),
            "send": lambda task: transport.send(task, [b"1"]),
            "bury": lambda task: transport.bury(task, [b"1"]),
        }
        for turns in range(25):
            # Each of a name of its own: the server (3.10) ends a connection that makes a queue once more while
            # it is still about to make it.
            doing = asyncio.ensure_future(verbs[verb](f"echo{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
            assert await transport.depth("other") == 0
        for turns in range(25):
            await transport.forget(f"echo{turns}")

    life(rabbit, "cancelled", body)


def test_a_server_that_is_short_of_memory_is_told_for_a_new_queue_too_and_hints_are_received(rabbit):
    async def body(transport):
        await transport.send("echo", bodies(2))
        await transport.send("other", bodies(1))
        await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", SHORT_OF_MEMORY)
        try:
            assert "short of memory" in await refused(transport.send("echo", bodies(1, start=5)))
            assert "short of memory" in await refused(
                transport.bury("echo", bodies(1))
            )  # on a channel of its own
            hints = await received(transport, "other", 1)
            await transport.ack("other", hints)
            assert await transport.depth("other") == 0
        finally:
            await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", PLENTY)

    life(rabbit, "short", body)


def test_what_cannot_be_given_back_while_the_server_takes_nothing_is_not_kept_from_others(
    rabbit, monkeypatch
):
    monkeypatch.setattr(session, "CONFIRM_MAX_S", 0.3)

    async def body(transport):
        await transport.send("echo", bodies(2))
        hints = await received(transport, "echo", 2)
        await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", SHORT_OF_MEMORY)
        try:
            await refused(transport.send("echo", bodies(1, start=5)))  # from here on it is blocked
            await transport.give_back("echo", hints, delay_s=0.0)
            known = transport._session.known_line("echo")
            while transport._ops or known.held:
                await asyncio.sleep(0.05)
        finally:
            await asyncio.to_thread(rabbit.ctl, "set_vm_memory_high_watermark", PLENTY)
        other = await RabbitTransport.open(rabbit.url(prefix="givenback"))
        try:
            again = await received(other, "echo", 2)
            await other.ack("echo", again)
        finally:
            await other.close()

    life(rabbit, "givenback", body)


def test_a_line_that_is_renewed_at_every_moment_loses_nothing(rabbit, monkeypatch):
    monkeypatch.setattr(line, "SILENT_MAX_S", 0.0)
    monkeypatch.setattr(line, "SLICE_S", 0.01)

    async def body(transport):
        left, number = set(bodies(100)), 0
        while left:
            if number < 100:
                sending = asyncio.ensure_future(transport.send("echo", bodies(1, start=number)))
                number += 1
            hints = await transport.receive("echo", limit=5, wait_s=0.3)
            await sending
            await transport.ack("echo", hints)
            left -= {hint.body for hint in hints}

    life(rabbit, "renewed", body)


def test_a_queue_that_answers_nobody_costs_no_channel_each_time_it_is_asked_about(rabbit, monkeypatch):
    @contextlib.asynccontextmanager
    async def unanswered(_, queue):
        yield
        raise alive.StuckQueueError(queue)

    async def body(transport):
        connection = transport._session._receiving.transport.connection
        await transport.depth("echo")
        before = len(connection.channels)
        monkeypatch.setattr(session, "answered", unanswered)
        for _ in range(5):
            assert "cannot be used" in await refused(transport.depth("echo"))
        monkeypatch.undo()
        await transport.depth("echo")
        assert len(connection.channels) == before

    life(rabbit, "dropped", body)


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_forged_and_doubled_messages_of_any_kind_are_thrown_away_and_run_nothing_twice(server, rabbit):
    async def body(api, node):
        await node.pause("echo", paused=True, now=clock.now())
        jobs = await submit(api, 3)
        await until(lambda: api.told().events["sent"] >= 3, api.told)
        real = [api._signer.body("echo", job) for job in jobs for _ in range(5)]
        forged = [
            aio_pika.Message(b""),
            aio_pika.Message(b"x" * (2 << 20)),
            aio_pika.Message(b'{"more":' + b"[" * 990),
            aio_pika.Message(b"\xff\xfe", content_encoding="gzip", content_type="application/json"),
            aio_pika.Message(b"{}", headers={"x-delivery-count": "many", "deep": {"a": [{"b": None}]}}),
            aio_pika.Message(
                b"[]", priority=9, reply_to="nowhere", expiration=3_600, correlation_id="\u0416"
            ),
        ]
        async with channel_of(rabbit) as channel:
            for message in [*forged, *(aio_pika.Message(text) for text in real)]:
                await channel.default_exchange.publish(message, routing_key="forged.echo")
        worker = Worker(node)
        await until(lambda: node.told().events["forged"] == len(forged), node.told)
        await node.pause("echo", paused=False, now=clock.now())
        await until(lambda: len(worker.done) >= len(jobs), node.told)
        while await node._link.depth("echo"):
            await asyncio.sleep(0.1)
        assert sorted(worker.begun) == sorted(worker.done) == sorted(jobs), "each once"
        assert not node.told().events["outages"]
        await worker.stop()

    relayed(server, rabbit, body, name="forged", prefix="forged")
