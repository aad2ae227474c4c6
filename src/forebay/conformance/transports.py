"""The contract of a Transport as checks that run: TRANSPORT_CHECKS; each gets connections to one broker, and
task names of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from forebay.conformance.fixtures import equal
from forebay.conformance.hinting import (
    ARRIVES_MAX_S,
    Place,
    bodies,
    counts,
    none_left,
    received,
    same,
    seconds,
    transport_idle,
)
from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import BODY_MAX, Hint, Transport

TransportCheck = Callable[[Place], Awaitable[None]]
TRANSPORT_CHECKS: list[TransportCheck] = []


def _check(run: TransportCheck) -> TransportCheck:
    TRANSPORT_CHECKS.append(run)
    return run


@_check
async def what_is_sent_is_received_and_does_not_come_again_once_acknowledged(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    await transport.send(task, bodies(3))
    hints = await received(transport, task, 3)
    same(hints, bodies(3), "what was received")
    await transport.ack(task, hints)
    await none_left(transport, task)
    await counts(transport, task, 0)
    await transport.close()
    later = await place.open()
    await none_left(later, task)
    await later.close()


@_check
async def what_was_sent_by_one_is_received_by_another(place: Place) -> None:
    task = place.task()
    sender, receiver = await place.open(), await place.open()
    await sender.send(task, bodies(5))
    await sender.close()
    hints = await received(receiver, task, 5)
    await receiver.ack(task, hints)
    await receiver.close()


@_check
async def what_is_held_comes_again_when_its_holder_closes(place: Place) -> None:
    task = place.task()
    first, second = await place.open(), await place.open()
    await first.send(task, bodies(4))
    await received(first, task, 4)
    await first.close()
    hints = await received(second, task, 4)
    same(hints, bodies(4), "what came again")
    await second.ack(task, hints)
    await second.close()


@_check
async def what_is_given_back_comes_again(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    await transport.send(task, bodies(2))
    hints = await received(transport, task, 2)
    await transport.give_back(task, hints, delay_s=0.0)
    again = await received(transport, task, 2)
    await transport.ack(task, again)
    await none_left(transport, task)
    await transport.close()


@_check
async def what_is_given_back_for_a_while_stays_away_where_the_broker_can(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    if transport.traits.delays:
        await transport.send(task, bodies(1))
        hints = await received(transport, task, 1)
        began = seconds()
        await transport.give_back(task, hints, delay_s=2.0)
        again = await received(transport, task, 1)
        away_s = seconds() - began
        if away_s < 0.9:  # brokers count in whole seconds
            raise AssertionError(f"given back for 2 s, it came again after {away_s:.2f} s")
        await transport.ack(task, again)
    await transport.close()


@_check
async def no_more_than_asked_for_is_returned(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    await transport.send(task, bodies(20))
    seen: set[bytes] = set()
    until = seconds() + ARRIVES_MAX_S
    while len(seen) < 20 and seconds() < until:
        hints = await transport.receive(task, limit=3, wait_s=1.0)
        if len(hints) > 3:
            raise AssertionError(f"3 were asked for, {len(hints)} were returned")
        seen |= {hint.body for hint in hints}
        await transport.ack(task, hints)
    same([Hint(body, None) for body in seen], bodies(20), "what was received in small parts")
    await transport.close()


@_check
async def nothing_there_is_said_after_the_wait(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    began = seconds()
    equal(await transport.receive(task, limit=5, wait_s=1.0), [], "what an empty queue returns")
    took_s = seconds() - began
    if not 0.5 <= took_s <= ARRIVES_MAX_S:
        raise AssertionError(f"a wait of 1 s took {took_s:.2f} s")
    equal(await transport.receive(task, limit=5, wait_s=0.0), [], "what it returns at once")
    await transport.close()


@_check
async def who_waits_is_woken_by_what_comes(place: Place) -> None:
    task = place.task()
    sender, receiver = await place.open(), await place.open()
    await receiver.receive(task, limit=1, wait_s=0.1)  # whatever it makes is made
    waiting = asyncio.ensure_future(receiver.receive(task, limit=1, wait_s=20.0))
    await sender.receive(transport_idle(task), limit=1, wait_s=0.5)
    began = seconds()
    await sender.send(task, bodies(1))
    hints = await waiting
    if seconds() - began > 5.0:
        raise AssertionError("a waiting receiver was not woken within 5 s")
    same(hints, bodies(1), "what the waiting one got")
    await receiver.ack(task, hints)
    await sender.close()
    await receiver.close()


@_check
async def tasks_do_not_mix(place: Place) -> None:
    names = [place.task(name) for name in ("a", "b", "a-b", "a_b")]
    transport = await place.open()
    for number, task in enumerate(names):
        await transport.send(task, [b"of %d" % number])
    for number, task in enumerate(names):
        hints = await received(transport, task, 1)
        same(hints, [b"of %d" % number], f"what {task} has")
        await transport.ack(task, hints)
        await none_left(transport, task)
    await transport.close()


@_check
async def a_task_may_have_any_name(place: Place) -> None:
    odd = ("Задача.\U0001f98a", "a/b c#d%e+f:g", "CamelCase", "camelcase", "x" * 300, "x" * 301)
    names = [place.task(name) for name in odd]
    transport = await place.open()

    async def comes(number: int, task: str) -> None:
        await transport.send(task, [b"of %d" % number])
        await transport.bury(task, [b"dead %d" % number])
        hints = await received(transport, task, 1)
        same(hints, [b"of %d" % number], f"what {task} has")
        await transport.ack(task, hints)
        await counts(transport, task, 0)

    await asyncio.gather(*(comes(number, task) for number, task in enumerate(names)))
    await transport.close()


@_check
async def bodies_are_any_bytes(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    sent = [b"\0", bytes(range(256)), b"x" * BODY_MAX, b"\xff\xfe", "\u00fc\U0001f980".encode()]
    await transport.send(task, sent)
    hints = await received(transport, task, len(sent))
    same(hints, sent, "bytes of all kinds")
    await transport.ack(task, hints)
    await transport.close()


@_check
async def many_at_once_arrive(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    await transport.send(task, bodies(500))
    await counts(transport, task, 500)
    left = set(bodies(500))
    until = seconds() + 3 * ARRIVES_MAX_S
    while left and seconds() < until:
        hints = await transport.receive(task, limit=100, wait_s=1.0)
        left -= {hint.body for hint in hints}
        await transport.ack(task, hints)
    equal(len(left), 0, "hints of 500 that did not come")
    await transport.close()


@_check
async def receivers_share_what_there_is(place: Place) -> None:
    task = place.task()
    one, two = await place.open(), await place.open()
    await one.send(task, bodies(40))
    seen: set[bytes] = set()
    until = seconds() + ARRIVES_MAX_S
    while len(seen) < 40 and seconds() < until:
        for transport in (one, two):
            hints = await transport.receive(task, limit=5, wait_s=0.2)
            await transport.ack(task, hints)
            seen |= {hint.body for hint in hints}
    equal(len(seen), 40, "hints that two receivers got together")
    await none_left(one, task)
    await one.close()
    await two.close()


@_check
async def a_receiver_that_is_cancelled_loses_nothing(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    await transport.receive(task, limit=1, wait_s=0.1)
    for round_ in range(5):
        waiting = asyncio.ensure_future(transport.receive(task, limit=1, wait_s=20.0))
        await transport.receive(transport_idle(task), limit=1, wait_s=0.05)
        await transport.send(task, bodies(1, start=round_))
        waiting.cancel()
        held = await asyncio.gather(waiting, return_exceptions=True)
        if isinstance(held[0], list):  # it had come already
            hints: Sequence[Hint] = held[0]
        else:
            hints = await received(transport, task, 1)
        same(hints, bodies(1, start=round_), "what a cancelled receiver left")
        await transport.ack(task, hints)
    await transport.close()


@_check
async def who_is_cancelled_in_a_verb_harms_no_other(place: Place) -> None:
    transport = await place.open()
    for turn in range(4):
        verbs: list[Awaitable[object]] = [
            transport.send(place.task(f"send{turn}"), bodies(1)),
            transport.bury(place.task(f"bury{turn}"), bodies(1)),
            transport.depth(place.task(f"depth{turn}")),
            transport.receive(place.task(f"receive{turn}"), limit=1, wait_s=5.0),
        ]
        for number, verb in enumerate(verbs):
            doing = asyncio.ensure_future(verb)
            await asyncio.wait({doing}, timeout=turn * 0.003)
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
            await transport.send(place.task(f"after{turn}-{number}"), bodies(1))
    task = place.task()
    await transport.send(task, bodies(1))
    hints = await received(transport, task, 1)
    await transport.ack(task, hints)
    await transport.close()


@_check
async def dead_letters_are_not_received(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    await transport.bury(task, bodies(2))
    await none_left(transport, task)
    await transport.close()


@_check
async def what_is_forgotten_is_made_again_when_it_is_used(place: Place) -> None:
    task = place.task()
    sender, receiver = await place.open(), await place.open()
    await sender.send(task, bodies(2))
    await receiver.receive(task, limit=1, wait_s=1.0)
    await sender.forget(task)
    await _sent(sender, task, bodies(3, start=10))
    seen: set[bytes] = set()
    until = seconds() + ARRIVES_MAX_S
    while not seen >= set(bodies(3, start=10)):
        if seconds() > until:
            raise AssertionError(f"after its queue was removed, {sorted(seen)} came")
        try:
            hints = await receiver.receive(task, limit=10, wait_s=1.0)
        except DeliveryUnavailableError:
            await _sent(sender, task, bodies(3, start=10))
            continue
        seen |= {hint.body for hint in hints}
        await receiver.ack(task, hints)
    await sender.close()
    await receiver.close()


async def _sent(transport: Transport, task: str, hints: Sequence[bytes]) -> None:
    for attempt in range(10):
        try:
            await transport.send(task, hints)
            return
        except DeliveryUnavailableError:
            if attempt == 9:
                raise


@_check
async def a_closed_one_says_so(place: Place) -> None:
    task = place.task()
    transport = await place.open()
    await transport.send(task, bodies(1))
    await transport.close()
    await transport.close()
    for verb in (transport.send(task, bodies(1)), transport.receive(task, limit=1, wait_s=0.0)):
        try:
            await verb
        except DeliveryUnavailableError:
            continue
        raise AssertionError("a closed transport went on")
