"""What delivers hints lasts: forged ones, odd errors and outages end no loop, and hold nothing for good."""

import asyncio
import contextlib

import pytest

from forebay import loops
from forebay.brokers.relay import MemoryHub, MemoryTransport, Relay
from forebay.brokers.relay import link as link_module
from forebay.brokers.relay.hints import Signer
from forebay.brokers.relay.link import Link
from forebay.brokers.relay.receiver import Receiver
from forebay.brokers.relay.sender import Sender
from forebay.clock import SystemClock
from forebay.core import relay as core

WAIT_MAX_S = 20.0
clock = SystemClock()
signer = Signer(b"key")
FORGED = [
    b"",
    b"null",
    b"\xff\xfe",
    b'{"forebay":1,"task":"echo","job":"a"}',
    b'{"forebay":1,"task":"echo","job":"\\ud800","mac":"00"}',
    b'{"forebay":1,"task":"echo","job":"a","mac":"\\udfff\\ud800"}',
    b'{"forebay":1,"task":"echo","job":"a","mac":"00","more":' + b"[" * 400 + b"]" * 400 + b"}",
    b'{"more":' + b"[" * 990,
    b'{"forebay":1e999,"task":"echo","job":"a","mac":"00"}',
    b'{"forebay":' + b"9" * 900 + b',"task":"echo","job":"a","mac":"00"}',
    b" " * 2_000,
]


def at_any_depth(depth, call):
    return call() if depth == 0 else at_any_depth(depth - 1, call)


@pytest.mark.parametrize("body", FORGED, ids=range(len(FORGED)))
@pytest.mark.parametrize("depth", [0, 200, 400, 600])
def test_what_nobody_of_this_store_made_is_no_hint_whatever_it_is(body, depth):
    assert at_any_depth(depth, lambda: signer.read("echo", body)) is None


def test_a_hint_is_of_its_task_alone():
    body = signer.body("echo", "a")
    assert signer.read("echo", body).job_id == "a"
    assert signer.read("other", body) is None and Signer(b"other").read("echo", body) is None


class Store:
    """What a receiver asks a store: fails as it is told."""

    def __init__(self):
        self.error = None
        self.queued = set()
        self.asked = 0

    async def still_queued(self, ids):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return set(ids) & self.queued


class Parts:
    """A receiver and a sender on one link to a hub."""

    def __init__(self, hub):
        self.hub, self.store, self.rung, self.heard = hub, Store(), [], []
        self.link = Link(
            MemoryTransport(hub), on_down=self.heard.append, on_up=lambda: self.heard.append(None)
        )
        self.sender = Sender(self.link, signer, clock, cry=lambda tasks: None)
        self.receiver = Receiver("echo", self.link, signer, self.store, clock, ring=self.rung.append)

    def wants(self, wanted=True):
        self.receiver.line._hungry_at = float("inf") if wanted else None
        self.receiver._wanted.set()

    async def until(self, condition):
        async with asyncio.timeout(WAIT_MAX_S):
            while not condition():
                await asyncio.sleep(0.01)


def parts(body, monkeypatch, hub=None):
    told = []

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        monkeypatch.setattr(loops, "PAUSE_S", 0.01)
        monkeypatch.setattr(core, "HELD_MAX_S", 0.0)
        one = Parts(hub or MemoryHub())
        one.sender.start()
        try:
            await body(one)
        finally:
            await one.receiver.close()
            await one.sender.stop()
            await one.link.close()

    asyncio.run(run())
    return told


def test_after_all_that_can_be_forged_hints_are_received(monkeypatch):
    async def body(one):
        for forged in FORGED:
            one.hub.arrive("echo", forged)
        one.wants()
        await one.until(lambda: one.link.events["forged"] == len(FORGED))
        one.hub.arrive("echo", signer.body("echo", "a"))
        await one.until(lambda: one.rung)

    assert parts(body, monkeypatch) == []


def test_an_error_nobody_thought_of_is_told_and_ends_no_receiving(monkeypatch):
    async def body(one):
        def took(_):
            one.receiver._took = Receiver._took.__get__(one.receiver)
            raise RuntimeError("odd")

        one.receiver._took = took
        one.wants()
        one.hub.arrive("echo", signer.body("echo", "a"))
        await one.until(lambda: "_took" in vars(one.receiver) and one.receiver._took is not took)
        one.hub.arrive("echo", signer.body("echo", "b"))
        await one.until(lambda: one.rung)

    (told,) = parts(body, monkeypatch)
    assert "receive hints of 'echo'" in told["message"] and str(told["exception"]) == "odd"


def test_a_store_that_fails_in_a_way_of_its_own_lets_no_hint_be_held_for_good(monkeypatch):
    async def body(one):
        one.store.error = RuntimeError("odd")
        one.hub.arrive("echo", signer.body("echo", "a"))
        one.wants()
        await one.until(lambda: one.store.asked)
        one.store.error = None
        await one.until(lambda: one.link.events["stale"] == 1 and one.hub.depth("echo") == 0)

    assert "look into hints" in parts(body, monkeypatch)[0]["message"]


def test_a_broker_that_is_back_is_known_to_be_so_though_nobody_wants_hints_any_more(monkeypatch):
    hub = MemoryHub()

    async def body(one):
        hub.faults.away = True
        one.wants()
        await one.until(lambda: one.heard)
        one.wants(False)
        hub.faults.away = False
        hub.arrive("echo", signer.body("echo", "a"))
        await one.until(lambda: one.link.up)
        assert one.heard[-1] is None
        await one.until(lambda: hub.depth("echo") == 0)  # what came of it was looked into, as ever

    assert parts(body, monkeypatch, hub) == []


def test_a_broker_that_is_back_is_known_to_be_so_though_nothing_is_left_to_be_sent(monkeypatch):
    hub = MemoryHub()

    async def body(one):
        hub.faults.away = True
        one.sender.announce("echo", "a")
        await one.until(lambda: one.heard)
        one.sender.pending.drop("echo", "a")  # it runs already
        hub.faults.away = False
        await one.until(lambda: one.link.up)
        assert one.heard[-1] is None
        assert [signer.read("echo", body).job_id for body in hub.queue("echo").waiting] == [""]

    assert parts(body, monkeypatch, hub) == []


class Closing:
    """A store that says whether it was closed."""

    closed = False

    def __init__(self):
        self.hinted = self

    async def secret(self):
        return b"key"

    def on_told(self, _):
        return lambda: None

    def cry(self, _):
        return

    async def close(self):
        self.closed = True


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_the_store_is_closed_whatever_the_client_of_a_broker_does_at_the_end(monkeypatch, how):
    monkeypatch.setattr(link_module, "CLOSE_MAX_S", 0.05)
    told = []

    class Odd(MemoryTransport):
        async def close(self):
            if how == "hangs":
                await asyncio.Event().wait()
            raise RuntimeError("odd")

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        store = Closing()
        relay = await Relay.open(store, Odd(MemoryHub()), clock=clock)
        with contextlib.suppress(RuntimeError):
            async with asyncio.timeout(WAIT_MAX_S):
                await relay.close()
        assert store.closed

    asyncio.run(run())
    assert len(told) == (how == "raises")
