"""What goes wrong with a NATS server: verbs say so in time, and go on by themselves when it is over."""

import asyncio
import logging

import pytest

from forebay.brokers.nats import NatsTransport, link, transport
from forebay.conformance.hinting import bodies, received, same
from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import BODY_MAX
from tests.brokers.nats.place import Place
from tests.wires import Wire

pytestmark = pytest.mark.engines
WAIT_MAX_S = 40.0


@pytest.fixture(autouse=True)
def silent(caplog, capfd):
    """Nothing that goes wrong is printed behind anybody's back."""
    yield
    assert [r for r in caplog.get_records("call") if r.levelno >= logging.WARNING] == []
    assert capfd.readouterr() == ("", "")


def life(body):
    """Run a test in a loop of its own, within a time."""

    async def run():
        async with asyncio.timeout(WAIT_MAX_S):
            await body()
        names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()} - {"life.<locals>.run"}
        assert not [name for name in names if "Client" in name or "Subscription" in name], names

    asyncio.run(run())


async def in_time(verb):
    """Return what `verb` returns as soon as the broker is there again."""
    while True:
        try:
            return await verb()
        except DeliveryUnavailableError:
            await asyncio.sleep(0.02)


async def refused(verb):
    """Await a verb that must fail; return its line."""
    with pytest.raises(DeliveryUnavailableError) as caught:
        await verb
    text = str(caught.value)
    assert "\n" not in text and "nats://127.0.0.1" in text
    return text


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_hints_outlive_a_restart_of_the_server(own, how):
    async def body():
        one = await NatsTransport.open(own.url())
        await one.send("echo", bodies(20))
        held = await received(one, "echo", 5, limit=5)
        waiting = asyncio.ensure_future(one.receive("idle", limit=1, wait_s=30.0))
        await asyncio.to_thread(own.halt, own.ENDS[how])
        await refused(waiting)
        for verb in (
            one.send("echo", bodies(1)),
            one.receive("echo", limit=1, wait_s=5.0),
            one.ack("echo", held),
            one.depth("echo"),
        ):
            await refused(verb)
        await asyncio.to_thread(own.start)
        assert await in_time(lambda: one.depth("echo")) == 20
        await one.ack("echo", held)  # the time of these is not over
        hints = await received(one, "echo", 15)
        same([*held, *hints], bodies(20), "what was there")
        await one.close()

    life(body)


def test_streams_that_are_gone_after_a_restart_are_made_again(own):
    async def body():
        one = await NatsTransport.open(own.url())
        await one.send("echo", bodies(3))
        await received(one, "echo", 1, limit=1)
        await asyncio.to_thread(own.halt)
        own.lose_streams()
        await asyncio.to_thread(own.start)
        assert await in_time(lambda: one.receive("echo", limit=1, wait_s=0.2)) == []
        await one.send("echo", bodies(2, start=10))
        same(await received(one, "echo", 2), bodies(2, start=10), "what was sent later")
        await one.close()

    life(body)


@pytest.mark.parametrize("verb", ["STREAM.DELETE.forebay", "CONSUMER.DELETE.forebay.echo"])
def test_what_is_deleted_under_a_waiting_receiver_is_made_again(own, verb):
    async def body():
        one, two = [await NatsTransport.open(own.url()) for _ in range(2)]
        waiting = asyncio.ensure_future(received(one, "echo", 2))
        while not own_waits(await asyncio.to_thread(own.api, "CONSUMER.INFO.forebay.echo")):
            pass
        await asyncio.to_thread(own.api, verb)
        await two.send("echo", bodies(2))
        same(await waiting, bodies(2), "what was sent after it")
        await one.close()
        await two.close()

    life(body)


def own_waits(info):
    return info.get("num_waiting")


def test_a_stream_that_is_deleted_under_a_sender_is_made_again_and_so_are_dead_letters(own):
    async def body():
        one = await NatsTransport.open(own.url())
        await one.send("echo", bodies(1))
        await one.depth("echo")
        for name in ("forebay", "forebay-dead"):
            await asyncio.to_thread(own.api, f"STREAM.DELETE.{name}")
        await one.bury("echo", bodies(1))
        await one.send("echo", bodies(4, start=10))
        assert await one.depth("echo") == 4
        assert (await asyncio.to_thread(own.api, "STREAM.INFO.forebay-dead"))["state"]["messages"] == 1
        await one.close()

    life(body)


def consumer(task, **settings):
    """The consumer of a task as an operator made it."""
    config = {"durable_name": task, "filter_subject": f"forebay.hint.{task}", "ack_policy": "explicit"}
    return {"stream_name": "forebay", "config": {**config, "max_deliver": -1, **settings}}


LASTING = consumer("echo", ack_wait=3_600 * 10**9)  # what nobody gives back does not come again


def test_a_task_whose_hints_are_all_held_does_not_stall_another(own):
    async def body():
        one = await NatsTransport.open(own.url())
        made = await asyncio.to_thread(
            own.api, "CONSUMER.DURABLE.CREATE.forebay.slow", consumer("slow", max_ack_pending=2)
        )
        assert "error" not in made
        await one.send("slow", bodies(5))
        await one.send("echo", bodies(50))
        held = await received(one, "slow", 2)
        assert await one.receive("slow", limit=5, wait_s=0.2) == []
        waiting = asyncio.ensure_future(received(one, "slow", 2))
        same(await received(one, "echo", 50), bodies(50), "what another task has")
        assert not waiting.done()
        await one.ack("slow", held)  # now there is room
        hints = await waiting
        await one.ack("slow", hints)
        same([*held, *hints, *await received(one, "slow", 1)], bodies(5), "what the slow one has")
        await one.close()

    life(body)


def test_a_hint_that_is_held_longer_than_the_server_waits_comes_again_elsewhere(own):
    async def body():
        one, two = [await NatsTransport.open(own.url()) for _ in range(2)]
        ack_wait = consumer("echo", ack_wait=300_000_000)
        await asyncio.to_thread(own.api, "CONSUMER.DURABLE.CREATE.forebay.echo", ack_wait)
        await one.send("echo", bodies(1))
        held = await received(one, "echo", 1)
        again = await received(two, "echo", 1)
        same(again, bodies(1), "what came again")
        await one.ack("echo", held)
        await two.ack("echo", again)
        while await two.depth("echo"):
            pass
        await one.close()
        await two.close()

    life(body)


def test_who_is_cut_off_hears_of_it_and_goes_on(server):
    async def body():
        place = Place(server)
        other = await place.open()
        async with Wire(server.port) as wire:
            one = await NatsTransport.open(server.url(place.prefix, port=wire.port))
            waiting = asyncio.ensure_future(one.receive("echo", limit=1, wait_s=30.0))
            await one.depth("echo")
            wire.cut()
            await refused(waiting)
            await other.send("echo", bodies(1))
            hints = await in_time(lambda: received(one, "echo", 1))
            same(hints, bodies(1), "what came later")
            assert wire.opened == 2
            await one.close()
        await place.close()

    life(body)


def test_a_server_that_falls_silent_is_given_up_in_time(server, monkeypatch):
    async def body():
        place = Place(server)
        async with Wire(server.port) as wire:
            one = await NatsTransport.open(server.url(place.prefix, port=wire.port))
            await one.send("echo", bodies(1))
            await received(one, "echo", 1)
            for module, name in (
                (link, "ALIVE_MAX_S"),
                (link, "CONNECT_MAX_S"),
                (transport, "PULL_MAX_S"),
                (transport, "SILENCE_S"),
            ):
                monkeypatch.setattr(module, name, 0.3)
            monkeypatch.setattr(link, "ANSWER_WAITS_S", (0.1, 0.2))
            wire.silence()
            verbs = [
                one.receive("echo", limit=1, wait_s=30.0),
                one.send("echo", bodies(1)),
                one.depth("echo"),
            ]
            for verb in [asyncio.ensure_future(verb) for verb in verbs]:
                await refused(verb)
            await refused(in_turn(one))
            monkeypatch.undo()
            wire.heal()
            assert await in_time(lambda: one.depth("echo")) is not None
            await one.close()
        await place.close()

    life(body)


async def in_turn(one):
    """A verb that finds no connection and cannot make one."""
    while True:
        await one.depth("echo")


def test_closing_on_a_server_that_is_silent_ends_in_time(server, monkeypatch):
    monkeypatch.setattr(link, "GIVE_BACK_MAX_S", 0.5)

    async def body():
        place = Place(server)
        async with Wire(server.port) as wire:
            one = await NatsTransport.open(server.url(place.prefix, port=wire.port))
            await one.send("echo", bodies(3))
            await received(one, "echo", 3)
            wire.silence()
            await one.close()
            await one.close()
        await place.close()

    life(body)


def test_forged_messages_are_hints_like_others_or_nothing_and_stop_nobody(own):
    async def body():
        one = await NatsTransport.open(own.url())
        forgeries = [
            (b"not ours", None),
            (b"x" * BODY_MAX * 2, None),
            (b"x" * BODY_MAX * 20, None),
            (b"in words", b"NATS/1.0\r\nStatus: 408\r\nDescription: Request Timeout\r\n\r\n"),
            (b"inline", b"NATS/1.0 404 No Messages\r\n\r\n"),
            (b"not text", b"NATS/1.0 \xff\xff\xff\xff\r\n\xff\xfe: \xff\r\n\r\n"),
            (b"no header", b"NATS/1.0\r\n\r\n"),
            (b"no colon", b"NATS/1.0\r\nword\r\n\r\n"),
            (b"short", b"NATS/1.0"),
        ]
        for body_, headers in forgeries:
            await asyncio.to_thread(own.publish, "forebay.hint.echo", body_, headers)
        await one.send("echo", bodies(3))
        hints = await received(one, "echo", 3 + 7)
        kept = [forged for forged, _ in forgeries if len(forged) <= BODY_MAX]
        same(hints, [*bodies(3), *kept], "what came")
        await one.ack("echo", hints)
        while await one.depth("echo"):
            pass
        await one.close()

    life(body)


def test_a_full_stream_refuses_and_says_so(own):
    async def body():
        one = await NatsTransport.open(own.url())
        config = (await asyncio.to_thread(own.api, "STREAM.INFO.forebay"))["config"]
        await asyncio.to_thread(own.api, "STREAM.UPDATE.forebay", {**config, "max_msgs": 3})
        text = await refused(one.send("echo", bodies(5)))
        assert "maximum messages exceeded" in text
        hints = await received(one, "echo", 3)
        assert len(hints) == 3
        await one.ack("echo", hints)
        while await one.depth("echo"):
            pass
        await one.send("echo", bodies(1))
        await one.close()

    life(body)


def test_the_limits_of_what_is_made_are_what_is_said(server):
    async def body():
        place = Place(server)
        one = await place.open()
        await one.depth("echo")
        api = lambda verb: asyncio.to_thread(server.api, verb)
        hints = (await api(f"STREAM.INFO.{place.prefix}"))["config"]
        dead = (await api(f"STREAM.INFO.{place.prefix}-dead"))["config"]
        echo = (await api(f"CONSUMER.INFO.{place.prefix}.echo"))["config"]
        assert (hints["retention"], hints["discard"], hints["storage"]) == ("workqueue", "new", "file")
        assert (hints["max_msgs"], hints["max_bytes"]) == (1_000_000, 256 << 20)
        assert (dead["retention"], dead["discard"], dead["max_msgs"]) == ("limits", "old", 100_000)
        assert dead["max_age"] == 14 * 86_400 * 10**9 and dead["max_bytes"] == 64 << 20
        assert (echo["max_deliver"], echo["ack_wait"], echo["max_ack_pending"]) == (-1, 30 * 10**9, 10_000)
        await place.close()

    life(body)


def test_with_the_last_task_the_streams_are_forgotten_unless_they_are_somebodys_own(own):
    async def body():
        names = lambda: asyncio.to_thread(own.streams)
        one = await NatsTransport.open(own.url())
        for task in ("a", "b.c"):
            await one.send(task, bodies(2))
            await one.receive(task, limit=1, wait_s=0.0)
        await one.bury("b.c", bodies(1))
        await one.forget("a")
        assert await names() == ["forebay", "forebay-dead"] and await one.depth("b.c") == 2
        await one.forget("b.c")
        assert await names() == []
        await one.send("a", bodies(1))
        config = (await asyncio.to_thread(own.api, "STREAM.INFO.forebay"))["config"]
        await asyncio.to_thread(own.api, "STREAM.UPDATE.forebay", {**config, "max_msgs": 3})
        await one.bury("a", bodies(1))
        await one.forget("a")
        assert await names() == ["forebay", "forebay-dead"]
        await one.close()

    life(body)


def test_the_same_hint_is_not_swallowed_when_it_is_announced_again(server):
    async def body():
        place = Place(server)
        one = await place.open()
        for _ in range(3):
            await one.send("echo", [b"the same"])
        assert await one.depth("echo") == 3
        await place.close()

    life(body)


def test_who_goes_away_while_waiting_keeps_nothing(own):
    async def body():
        one, two = [await NatsTransport.open(own.url()) for _ in range(2)]
        await asyncio.to_thread(own.api, "CONSUMER.DURABLE.CREATE.forebay.echo", LASTING)
        for transport_ in (one, two):
            await transport_.receive("echo", limit=1, wait_s=0.0)
        for turns in range(20):
            waiting = asyncio.ensure_future(one.receive("echo", limit=10, wait_s=30.0))
            sending = asyncio.ensure_future(two.send("echo", bodies(10)))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await sending
            got = waiting.result() if not waiting.cancelled() else []
            hints = [*got, *await received(two, "echo", 10 - len(got))]
            await one.ack("echo", got)
            await two.ack("echo", hints)
        while await one.depth("echo"):
            pass
        await one.close()
        await two.close()

    life(body)


def test_who_closes_gives_back_what_is_held_and_what_is_on_its_way(own):
    async def body():
        other = await NatsTransport.open(own.url())
        await asyncio.to_thread(own.api, "CONSUMER.DURABLE.CREATE.forebay.echo", LASTING)
        await other.send("echo", bodies(30))
        for _ in range(5):
            one = await NatsTransport.open(own.url())
            await received(one, "echo", 10, limit=10)
            waiting = asyncio.ensure_future(one.receive("echo", limit=10, wait_s=30.0))
            await asyncio.sleep(0)
            await one.close()
            await asyncio.gather(waiting, return_exceptions=True)
        same(await received(other, "echo", 30), bodies(30), "what was given back")
        await other.close()

    life(body)


def test_a_connection_that_is_dead_on_one_side_is_replaced(server, monkeypatch):
    monkeypatch.setattr(link, "PING_EVERY_S", 3_600)  # it is found out by who asks

    async def body():
        place = Place(server)
        async with Wire(server.port) as wire:
            one = await NatsTransport.open(server.url(place.prefix, port=wire.port))
            await one.send("echo", bodies(1))
            monkeypatch.setattr(link, "ALIVE_MAX_S", 0.2)
            monkeypatch.setattr(link, "ANSWER_WAITS_S", (0.2, 0.2))
            for verb in (
                lambda: one.receive("idle", limit=1, wait_s=0.1),
                lambda: one.send("echo", bodies(1)),
            ):
                await in_time(verb)
                opened = wire.opened
                wire.silence(new=False)
                await refused(verb())
                await in_time(verb)
                assert wire.opened > opened
            await one.close()
        await place.close()

    life(body)


def test_who_is_cancelled_while_it_asks_for_a_sign_of_life_harms_nobody(server, monkeypatch):
    async def body():
        place = Place(server)
        async with Wire(server.port) as wire:
            one = await NatsTransport.open(server.url(place.prefix, port=wire.port))
            await one.receive("echo", limit=1, wait_s=0.0)
            monkeypatch.setattr(transport, "SILENCE_S", 0.1)
            monkeypatch.setattr(link, "ALIVE_MAX_S", 30.0)
            wire.silence()
            waiting = asyncio.ensure_future(one.receive("echo", limit=1, wait_s=0.1))
            while not one._link._client._pongs:
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            wire.heal()
            await one.send("echo", bodies(1))
            same(await received(one, "echo", 1), bodies(1), "what came on the same connection")
            assert wire.opened == 1
            await one.close()
        await place.close()

    life(body)


def test_who_is_cut_off_while_much_is_on_its_way_goes_on(server):
    async def body():
        place = Place(server)
        async with Wire(server.port) as wire:
            one = await NatsTransport.open(server.url(place.prefix, port=wire.port))
            for _ in range(5):
                sending = [asyncio.ensure_future(one.send("echo", bodies(300))) for _ in range(2)]
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                wire.cut()
                told = await asyncio.gather(*sending, return_exceptions=True)
                assert {type(each) for each in told} <= {DeliveryUnavailableError, type(None)}
                await in_time(lambda: one.depth("echo"))
            await one.close()
        await place.close()

    life(body)
