"""Kafka when things go wrong: brokers that refuse, are away or slow, rebalances, forged and doubled messages."""

import asyncio

import pytest
from confluent_kafka import Producer

from forebay.brokers.kafka import KafkaTransport, reading, sending
from forebay.conformance.hinting import bodies, none_left, received, same, seconds
from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import BODY_MAX
from tests.brokers.kafka.mock_cluster import FIND_COORDINATOR, PRODUCE
from tests.brokers.kafka.places import KafkaPlace
from tests.ports import free_port

pytestmark = [pytest.mark.engines, pytest.mark.xdist_group("kafka-faults"), pytest.mark.timeout(120)]
LEADER_MOVED, TIMED_OUT, TOPIC_FORBIDDEN, GROUP_FORBIDDEN = 6, 7, 29, 30


def on(url, test, **settings):
    async def run():
        async with KafkaPlace(url, **settings) as place:
            await test(place)

    asyncio.run(run())


async def until(condition, what, wait_max_s=60.0):
    ends_at = seconds() + wait_max_s
    while not await condition():
        assert seconds() < ends_at, what
        await asyncio.sleep(0.05)


def test_a_refused_produce_is_tried_again(mock):
    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(1))
        mock.do("errors", PRODUCE, TIMED_OUT, LEADER_MOVED)
        await transport.send(task, bodies(5, start=1))
        hints = await received(transport, task, 6)
        same(hints, bodies(6), "what came")
        await transport.ack(task, hints)

    on(mock.url(), check)


def test_brokers_that_are_away_are_told_of_within_a_bound_and_found_again(mock, monkeypatch):
    monkeypatch.setattr(sending, "SEND_MAX_S", 2.0)

    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(3))
        held = await received(transport, task, 3)
        mock.do("down")
        for verb in (
            transport.send(task, bodies(1, start=3)),
            transport.depth(task),
            transport.give_back(task, held[:1], delay_s=0),
        ):
            began = seconds()
            with pytest.raises(DeliveryUnavailableError) as caught:
                await verb
            assert seconds() - began < 20 and "\n" not in str(caught.value)
            assert str(caught.value).startswith("kafka://127.0.0.1:")

        async def said():
            try:
                await transport.receive(task, limit=1, wait_s=0.1)
            except DeliveryUnavailableError:
                return True

        await until(said, "a receiver hears that no broker is there")
        await transport.ack(task, held[1:])  # the brokers hear of it later
        mock.do("up")

        async def sent():
            try:
                await transport.send(task, bodies(2, start=4))
            except DeliveryUnavailableError:
                return False
            return True

        await until(sent, "it goes on when the brokers are back")
        await transport.ack(
            task, await received_in_the_end(transport, task, {held[0].body, *bodies(2, start=4)})
        )

        async def done():  # what was told as not sent may have been, and comes twice
            await transport.ack(task, await transport.receive(task, limit=100, wait_s=0.1))
            return await transport.depth(task) == 0

        await until(done, "all of it is committed")

    on(mock.url(), check)


def nothing_counts(transport, task):
    async def look():
        return await transport.depth(task) == 0

    return look


async def received_in_the_end(transport, task, wanted, wait_max_s=60.0):
    """Return hints when the wanted ones came; brokers that come back say no for a moment."""
    found, ends_at = [], seconds() + wait_max_s
    while not wanted <= {hint.body for hint in found}:
        assert seconds() < ends_at, (wanted, found)
        try:
            found += await transport.receive(task, limit=100, wait_s=0.5)
        except DeliveryUnavailableError:
            await asyncio.sleep(0.1)
    return found


def test_a_cluster_far_away_is_slow_and_nothing_else(mock):
    mock.do("rtt", 300)

    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(20))
        hints = await received(transport, task, 20)
        await transport.give_back(task, hints[:1], delay_s=0.0)
        await transport.ack(task, hints[1:])
        hints = await received(transport, task, 1)
        same(hints, [hints[0].body], "what came again")
        await transport.ack(task, hints)
        await until(nothing_counts(transport, task), "all of it is committed")

    on(mock.url(), check)


def test_hints_that_are_held_while_another_joins_come_once_more_and_then_no_more(tansu):
    async def check(place):
        task, first, second = place.task(), await place.open(), await place.open()
        held = []
        while (
            len({hint.token.partition for hint in held}) < 4
        ):  # the client chooses where a group of them goes
            assert len(held) < 1_000
            await first.send(task, bodies(10, start=len(held)))
            held += await received(first, task, 10)
        others = await received(second, task, 2)  # what the first holds there is its own no more
        await first.ack(task, held)
        await second.ack(task, others)
        seen = {hint.body for hint in held}
        assert {hint.body for hint in others} <= seen
        left = await drained(task, first, second)
        assert left <= seen
        await until(nothing_counts(first, task), "all of it is committed")

    on(tansu.url(partitions=4), check)


async def drained(task, *transports):
    """Acknowledge what comes until nothing does, and return the bodies."""
    seen, quiet = set(), 0
    while quiet < 4:
        hints = [await one.receive(task, limit=100, wait_s=0.5) for one in transports]
        for transport, some in zip(transports, hints):
            await transport.ack(task, some)
            seen |= {hint.body for hint in some}
        quiet = 0 if any(hints) else quiet + 1
    return seen


def test_what_is_acknowledged_above_a_hint_that_is_held_comes_again_with_it_and_nothing_below_does(tansu):
    async def check(place):
        task, first = place.task(), await place.open()
        for number in range(6):
            await first.send(task, bodies(1, start=number))
        held = await received(first, task, 6)
        await first.ack(task, [hint for hint in held if hint.body != b"hint 2"])
        await first.close()
        second = await place.open()
        hints = await received(second, task, 4)
        same(hints, bodies(4, start=2), "what came again")
        await second.ack(task, hints)
        await none_left(second, task)

    on(tansu.url(partitions=1), check)


def test_what_is_no_hint_or_came_twice_is_handed_out_and_done_with(mock):
    forged = [b"", b"x" * 200_000, b"\0" * 7, b"same", b"same"]

    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(1))
        producer = Producer({"bootstrap.servers": mock.servers, "log_level": 0})
        for value in [None, *forged]:
            producer.produce(transport._address.topic(task), value, key=b"key", headers={"h": b"1"})
        assert await asyncio.to_thread(producer.flush, 20) == 0
        hints = []
        while len(hints) < 7:
            hints += await transport.receive(task, limit=100, wait_s=1.0)
        assert max(len(hint.body) for hint in hints) == BODY_MAX + 1  # it can be told from a hint
        assert [hint.body for hint in hints].count(b"same") == 2
        await transport.ack(task, hints)
        await transport.ack(task, hints)
        await transport.give_back(task, hints, delay_s=0.0)  # not held any more: passed over
        await none_left(transport, task)

    on(mock.url(), check)


def test_what_is_kept_away_is_held_within_a_bound(mock, monkeypatch):
    from forebay.brokers.kafka import transport as module

    monkeypatch.setattr(module, "DELAYED_MAX", 3)

    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(5))
        hints = await received(transport, task, 5)
        await transport.give_back(task, hints, delay_s=50.0)
        await transport.give_back(task, hints[:3], delay_s=0.0)  # is away already
        again = await received(transport, task, 2)
        same(again, [hint.body for hint in hints[3:]], "what there was no room for")
        await transport.ack(task, again)
        await transport.close()
        other = await place.open()
        await received_in_the_end(other, task, {hint.body for hint in hints[:3]})

    on(mock.url(), check)


def test_a_reader_that_nobody_asks_leaves_its_place_to_others(mock, monkeypatch):
    monkeypatch.setattr(reading, "IDLE_MAX_S", 0.5)

    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(2))
        held = await received(transport, task, 1, limit=1)
        reader = transport._readers[task]
        with pytest.raises(AssertionError):
            await until(ended(reader), "it holds one, so it stays", 2.0)
        await transport.ack(task, held)
        await until(ended(reader), "it leaves")
        assert reader.ended == ""
        hints = await received(transport, task, 1)  # and comes back when it is asked
        await transport.ack(task, hints)

    on(mock.url(), check)


def ended(reader):
    async def look():
        return reader.ended is not None

    return look


def test_too_many_that_wait_are_left_in_the_topic(mock, monkeypatch):
    monkeypatch.setattr(reading, "BUFFER_MAX", 50)

    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(1_000))
        hints = await received(transport, task, 1, limit=1)
        reader = transport._readers[task]

        async def paused():
            return reader._paused

        await until(paused, "it takes no more")
        assert len(reader._buffer) <= 50 + reading.BATCH_MAX
        hints += await received(transport, task, 999)
        same(hints, bodies(1_000), "all of them come when they are asked for")

    on(mock.url(), check, **{"batch.num.messages": "1000"})


def test_a_group_that_may_not_be_read_is_one_line(mock):
    async def check(place):
        task, transport = place.task(), await place.open()
        mock.do("errors", FIND_COORDINATOR, *[GROUP_FORBIDDEN] * 50)  # a client that is closing may ask, too
        with pytest.raises(DeliveryUnavailableError, match="(?i)authorization") as caught:
            await received(transport, task, 1)
        assert "\n" not in str(caught.value)

    on(mock.url(), check)


def test_a_cluster_that_is_not_there_is_one_line_that_says_why():
    with pytest.raises(DeliveryUnavailableError) as caught:
        asyncio.run(
            KafkaTransport.open(f"kafka://me:hush@127.0.0.1:{free_port()}?security.protocol=sasl_plaintext")
        )
    text = str(caught.value)
    assert "\n" not in text and "hush" not in text and "refused" in text and len(text) < 500, text


def test_a_topic_that_may_not_be_used_is_one_line(mock):
    async def check(place):
        task, transport = place.task(), await place.open()
        mock.do("topic", transport._address.topic(task), TOPIC_FORBIDDEN)
        for verb in (transport.send(task, bodies(1)), transport.receive(task, limit=1, wait_s=0)):
            with pytest.raises(
                DeliveryUnavailableError, match=f"forebay-{task[:4]}.*(?i:authorization)"
            ) as caught:
                await verb
            assert "\n" not in str(caught.value)

    on(mock.url(), check)


def test_connections_that_are_cut_are_made_again(tansu):
    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(1))
        held = await received(transport, task, 1)
        tansu.door.cut()
        await transport.send(task, bodies(2, start=1))
        hints = await received_in_the_end(transport, task, set(bodies(2, start=1)))
        await transport.ack(task, [*held, *hints])
        await until(nothing_counts(transport, task), "all of it is committed")

    on(tansu.url(), check)
