"""An upstream with a gate: while its own metric says that it is full no call begins, and no page can hurt."""

import asyncio
import socket

import pytest

import forebay
from forebay.brokers.memory import MemoryBroker
from forebay.clock import SystemClock
from forebay.core.job import Job, Query
from forebay.core.saturation import SaturationPolicy, SaturationSpec
from forebay.node.facts import NoFacts
from forebay.node.lane import Lane
from forebay.node.saturation import Page, value_in
from forebay.node.slot import Slot
from forebay.node.upstream import Upstream
from tests.node.hostile import chunk, chunked, says, upstream, whole

LONG = 60.0  # nothing here should come near it
POLICY = SaturationPolicy(close_at=10.0, open_at=5.0)


def spec_of(metric="queued", url="http://127.0.0.1:1/metrics", headers=(), of="max"):
    return SaturationSpec(
        url=url,
        metric=metric.partition("{")[0],
        labels=forebay.Saturation(metric, close_at=2, open_at=1).labels,
        of=of,
        policy=POLICY,
        headers=headers,
    )


def page_of(text):
    return whole(text.encode(), kind="text/plain; version=0.0.4")


# -- the page ------------------------------------------------------------------------------------------

VLLM = """\
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting{engine="1",model_name="m"} 9.0
vllm:num_requests_waiting{engine="0",model_name="other, \\"one\\""} 40.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m"} 99.0
xvllm:num_requests_waiting 98.0
"""


@pytest.mark.parametrize(
    ("metric", "of", "value"),
    [
        ("vllm:num_requests_waiting", "max", 40.0),
        ("vllm:num_requests_waiting", "sum", 56.0),
        ('vllm:num_requests_waiting{model_name="m"}', "max", 9.0),
        ('vllm:num_requests_waiting{model_name="m"}', "sum", 16.0),
        ('vllm:num_requests_waiting{model_name="m", engine="0"}', "sum", 7.0),
        ('vllm:num_requests_waiting{model_name="other, \\"one\\""}', "max", 40.0),
        ("xvllm:num_requests_waiting", "max", 98.0),
    ],
)
def test_the_largest_or_the_sum_of_the_series_with_its_labels_is_the_value(metric, of, value):
    assert value_in(VLLM.encode(), spec_of(metric, of=of)) == value


@pytest.mark.parametrize(
    ("text", "of", "value"),
    [
        ("queued 3 1700000000000", "max", 3.0),
        ("queued\t3\r", "max", 3.0),
        ('queued {a="1"} 3', "max", 3.0),
        ('queued{a="1"} 3\nqueued{a="1"} 4', "sum", 4.0),
        ('queued{a="1"} NaN\nqueued{a="2"} 4\nqueued{a="3"} +Inf', "max", 4.0),
        ("# HELP queued\nbroken line of another metric }{\nqueued 4", "max", 4.0),
        ("\xff\nqueued 4", "max", 4.0),
    ],
)
def test_a_page_that_is_not_as_it_should_be_is_read_as_far_as_it_can_be(text, of, value):
    assert value_in(text.encode("latin-1"), spec_of(of=of)) == value


NONE = [
    (page_of(""), "its metrics page has no number for queued"),
    (page_of("queued NaN"), "its metrics page has no number for queued"),
    (page_of("queued +Inf"), "its metrics page has no number for queued"),
    (page_of("queued many"), "its metrics cannot be read: "),
    (page_of("queued " + "9" * 4000), "its metrics cannot be read: "),
    (page_of('queued{a="'), "its metrics cannot be read: "),
    (page_of("queued{"), "its metrics cannot be read: "),
    (page_of("# TYPE queued counter\nqueued 4"), "queued is a counter, which never falls"),
    (page_of('queued{a="%s"} 1' % ("x" * 70_000)), "the series of queued are longer than 65,536 bytes"),
    (page_of("queued 1\n" * 20_000), "the series of queued are longer than 65,536 bytes"),
    (page_of("# x\n" * 300_000), "its metrics page is longer than 1,048,576 bytes"),
    (whole(b"<html>hello</html>", kind="text/html"), "its metrics page has no number for queued"),
    (whole(b'{"queued": 4}'), "its metrics page has no number for queued"),
    (whole(b"queued 4", status="404 Not Found"), "its metrics page answered 404"),
    (whole(b"", status="302 Found", location="/elsewhere"), "its metrics page answered 302"),
    (whole(b"\x1f\x8b", content_encoding="gzip"), "its metrics page is encoded (gzip)"),
    (b"SSH-2.0-OpenSSH\r\n\r\n", "its metrics cannot be read: "),
]


def look(answer, **given):
    async def main():
        async with upstream(answer) as served:
            page = Page(spec_of(url=served.url, **given), agent="forebay/test")
            try:
                return await page.look(), served
            finally:
                await page.close()

    return asyncio.run(main())


@pytest.mark.parametrize(("data", "words"), NONE, ids=[str(number) for number in range(len(NONE))])
def test_a_page_without_a_value_says_why_and_raises_nothing(data, words, monkeypatch):
    monkeypatch.setattr("forebay.node.saturation.LOOK_S", LONG)
    (value, why), served = look(says(data))
    assert value is None
    assert why.startswith(words) and len(why) < 300
    assert len(served.requests) == 1, "nothing is followed, nothing is asked again"


async def gigabyte(asked, writer):
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1000000000\r\n\r\nqueued 4\n"
    )
    while True:
        writer.write(b"# " + b"x" * 65_536)
        await writer.drain()


async def endless(asked, writer):
    writer.write(chunked("text/plain"))
    while True:
        writer.write(chunk(b"queued 4\n" * 5_000))
        await writer.drain()


@pytest.mark.parametrize("answer", [gigabyte, endless])
def test_of_a_page_without_end_no_more_is_read_than_its_bound(answer, monkeypatch):
    monkeypatch.setattr("forebay.node.saturation.LOOK_S", LONG)
    (value, why), _ = look(answer)
    assert (value, why) == (None, "its metrics page is longer than 1,048,576 bytes")


async def silent(asked, writer):
    await asyncio.Event().wait()


async def half(asked, writer):
    writer.write(page_of("queued 4\n")[:-4])
    await writer.drain()
    await asyncio.Event().wait()


@pytest.mark.parametrize("answer", [silent, half])
def test_a_page_that_is_slow_has_no_value(answer, monkeypatch):
    monkeypatch.setattr("forebay.node.saturation.LOOK_S", 0.2)
    (value, why), _ = look(answer)
    assert (value, why) == (None, "a look at its metrics took longer than 0.2 s")


def test_the_headers_go_along_where_they_may():
    _, served = look(says(page_of("queued 4")), headers=(("Authorization", "Bearer k"),))
    (asked,) = served.requests
    assert (asked.method, asked.headers["authorization"]) == ("GET", "Bearer k")
    assert asked.headers["accept-encoding"] == "identity"


def test_nobody_there_is_no_value():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/metrics"

        async def main():
            page = Page(spec_of(url=url), agent="a")
            try:
                return await page.look()
            finally:
                await page.close()

        value, why = asyncio.run(main())
    assert value is None
    assert why.startswith("its metrics cannot be read: ")


# -- the gate ------------------------------------------------------------------------------------------


class HandClock(SystemClock):
    """Stands still until it is moved."""

    def __init__(self):
        super().__init__()
        self.at = super().now()

    def now(self):
        return self.at


class Facts(NoFacts):
    def __init__(self):
        self.looks = 0
        self.stand = ""
        self.reasons = []

    def gated(self, task, stand, value, reason):
        self.looks += 1
        self.stand = stand
        if reason:
            self.reasons.append((stand, reason))


async def until(condition, what):
    async with asyncio.timeout(LONG):
        while not condition():
            await asyncio.sleep(0.01)
    assert condition(), what


class Rig:
    """A lane with an upstream, and the server behind it with a number that the test moves."""

    def __init__(self):
        self.page = page_of("queued 0\n")
        self.calls = 0
        self.hold = False  # calls do not end
        self.free = asyncio.Event()

    async def answer(self, asked, writer):
        if asked.target == "/metrics":
            writer.write(self.page)
            return
        self.calls += 1
        if self.hold:
            await self.free.wait()
        writer.write(whole(b"1"))

    def begin(self, url):
        gate = forebay.Saturation("queued", close_at=10, open_at=5, every=0.1)
        spec = forebay.App().upstream("up", url=url, concurrency=8, gate=gate).spec
        self.broker, self.clock, self.facts = MemoryBroker(), HandClock(), Facts()
        self.lane = Lane([spec], broker=self.broker, clock=self.clock, worker="w", facts=self.facts)
        self.broker.on_work(self.lane.knock)
        self.upstream = Upstream(self.lane, Slot(1, "w/up/0", "upstream", None), spec, clock=self.clock)
        self.upstream.start()

    def says(self, value):
        self.page = page_of(f"queued {value}\n")

    async def submit(self, count):
        now = self.clock.now()
        jobs = [Job(self.broker.new_id(now), "up", b"1", now, now) for _ in range(count)]
        await self.broker.enqueue(jobs, now=now)

    async def states(self):
        page = await self.broker.find(Query(limit=50), now=self.clock.now())
        return sorted((one.standing.state.value, one.standing.attempt) for one in page.records)

    async def done(self, count):
        async with asyncio.timeout(LONG):
            while [state for state, _ in await self.states()].count("succeeded") < count:
                await asyncio.sleep(0.01)

    async def stands(self, stand):
        await until(lambda: self.facts.stand == stand, stand)

    async def looked(self, times=3):
        """Wait for so many more looks."""
        wanted = self.facts.looks + times
        await until(lambda: self.facts.looks >= wanted, "it looks on")

    async def close_it(self):
        """Have one call out while it says that it is full, until the gate is closed."""
        self.hold = True
        await self.submit(1)
        await until(lambda: self.calls == 1, "the call is out")
        self.says(10)
        await self.stands("closed")
        self.hold = False
        self.free.set()
        await self.done(1)


def rigged(doing):
    async def main():
        rig = Rig()
        async with upstream(rig.answer) as served:
            rig.begin(served.url)
            try:
                await doing(rig, served)
            finally:
                await rig.upstream.close(LONG)
                await rig.lane.close()

    asyncio.run(main())


def test_while_it_is_closed_no_call_begins_nothing_is_charged_and_calls_that_are_out_go_on():
    async def doing(rig, served):
        await rig.close_it()
        await rig.submit(5)
        await rig.looked()
        rig.says(6)
        await rig.looked()
        assert rig.calls == 1, "less than it closes at, and more than it opens at"
        assert await rig.states() == [("queued", 0)] * 5 + [("succeeded", 1)]
        rig.says(5)
        await rig.done(6)
        assert await rig.states() == [("succeeded", 1)] * 6
        assert (rig.calls, rig.facts.stand) == (6, "open")
        assert rig.facts.reasons == [("closed", "10 (closes at 10)"), ("open", "5 (opens at 5)")]

    rigged(doing)


def test_a_page_that_is_gone_opens_it_once_its_last_value_is_stale():
    async def doing(rig, served):
        await rig.close_it()
        await rig.submit(2)
        rig.page = whole(b"", status="404 Not Found")
        await rig.looked()
        rig.clock.at += 9.5
        await rig.looked()
        assert (rig.facts.stand, rig.calls) == ("closed", 1)
        rig.clock.at += 1.0
        await rig.done(3)
        assert rig.facts.reasons[1:] == [("blind", "no value for 10 s: its metrics page answered 404")]

    rigged(doing)


def test_an_upstream_that_begins_anew_is_as_closed_as_it_was():
    async def doing(rig, served):
        await rig.close_it()
        rig.upstream.kill("for the test")
        await rig.submit(2)
        await rig.looked()
        assert rig.calls == 1
        rig.says(0)
        await rig.done(3)

    rigged(doing)


def test_an_idle_server_is_not_looked_at():
    async def doing(rig, served):
        watch = rig.upstream._watch
        assert served.requests == []
        await rig.submit(3)
        await rig.done(3)
        await until(lambda: rig.facts.looks > 1, "it looked")
        await until(lambda: watch._timer is None and watch._looking is None, "it looks no more")
        looks = rig.facts.looks
        await rig.submit(1)
        await until(lambda: rig.facts.looks > looks, "there is work again")

    rigged(doing)


def test_a_closed_upstream_looks_no_more():
    async def doing(rig, served):
        await rig.close_it()
        await rig.upstream.close(LONG)
        watch = rig.upstream._watch
        assert watch._looking is None or watch._looking.done()
        watch.work()
        assert watch._timer is None

    rigged(doing)
