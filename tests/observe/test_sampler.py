"""The sampler of queue lengths: every 100 ms of the clock, into the peaks that a scrape takes."""

import asyncio

from forebay.core.arrivals import ArrivalWindows
from forebay.core.peak import Peak
from forebay.observe import sampler as sampler_module
from forebay.observe.metrics import RENDER_FRESH_S, Exposition, Recent
from forebay.observe.sampler import SAMPLE_S, DepthSampler
from forebay.ports.broker import Load


class Hand:
    """A clock that is moved by hand: whoever sleeps waits until `move` has passed its time."""

    def __init__(self):
        self.at = 1_000.0
        self._sleepers = []

    def now(self):
        return self.at

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        done = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.at + seconds, done))
        await done

    async def move(self, seconds):
        until = self.at + seconds
        for _ in range(10_000):
            await asyncio.sleep(0)
            due = [one for one in self._sleepers if one[0] <= until + 1e-9]
            if not due:
                break
            first = min(due, key=lambda one: one[0])
            self._sleepers.remove(first)
            self.at = max(self.at, first[0])
            first[1].set_result(None)
        self.at = until


class Loads:
    """An engine that knows how many wait, or (None) does not."""

    def __init__(self, depth_of):
        self._depth_of = depth_of
        self.doorbells = []

    def on_work(self, doorbell):
        self.doorbells.append(doorbell)
        return self.doorbells.clear

    def load_now(self, task, *, now):
        depth = self._depth_of(task)
        return None if depth is None else Load(depth, depth, 0, 0)


def test_a_queue_is_looked_at_each_100_ms():
    async def play():
        clock, looks = Hand(), []
        loads = Loads(lambda task: looks.append(round(clock.now(), 3)) or 7)
        sampler = DepthSampler({"t": Peak()}, loads, clock)
        sampler.start()
        await clock.move(1.05)
        await sampler.close()
        await sampler.close()
        assert loads.doorbells == []
        assert looks == [round(1_000.0 + i * SAMPLE_S, 3) for i in range(11)]

    asyncio.run(play())


def test_while_nothing_waits_it_rests_until_a_doorbell_rings(monkeypatch):
    monkeypatch.setattr(sampler_module, "REST_S", 3_600.0)

    async def play():
        clock, looks, depth = Hand(), [], [0]
        loads = Loads(lambda task: looks.append(round(clock.now(), 3)) or depth[0])
        peak = Peak()
        sampler = DepthSampler({"t": peak}, loads, clock)
        sampler.start()
        await clock.move(5.0)
        assert looks == [1_000.0]
        depth[0] = 7
        loads.doorbells[0]("t")
        await clock.move(0.25)
        assert looks == [1_000.0, 1_005.0, 1_005.1, 1_005.2]
        depth[0] = 0
        await clock.move(5.0)
        assert looks == [1_000.0, 1_005.0, 1_005.1, 1_005.2, 1_005.3]
        assert peak.take() == 7 and peak.latest == 0
        await sampler.close()

    asyncio.run(play())


def test_an_empty_queue_is_looked_at_now_and_then_without_a_doorbell(monkeypatch):
    monkeypatch.setattr(sampler_module, "REST_S", 0.0)

    async def play():
        clock, looks = Hand(), []
        loads = Loads(lambda task: looks.append(clock.now()) or 0)
        sampler = DepthSampler({"t": Peak()}, loads, clock)
        sampler.start()
        async with asyncio.timeout(20):
            while len(looks) < 3:
                await clock.move(0.1)
                await asyncio.sleep(0.001)
        await sampler.close()

    asyncio.run(play())


def test_a_scrape_tells_the_peak_since_the_last_one_and_the_p99_of_arrivals():
    clock, depths = Hand(), iter((1, 250, 0, 0))
    windows, peaks = {"t": ArrivalWindows()}, {"t": Peak(), "remote": Peak()}
    loads = Loads(lambda task: next(depths) if task == "t" else None)
    sampler = DepthSampler(peaks, loads, clock)
    meters = Exposition(["t"], now=clock.now, recent=Recent(windows, peaks))
    windows["t"].arrived(120, now=clock.at)
    for _ in range(3):
        sampler.sample()
        clock.at += 0.1
    clock.at += 1.0

    def line(name):
        return next(
            text
            for text in meters.render()[0].decode().splitlines()
            if text.startswith(f'{name}{{task="t"}}')
        )

    assert line("inference_queue_length_peak").endswith(" 250.0")
    assert line("inference_arrival_rate_p99").endswith(" 120.0")
    clock.at += RENDER_FRESH_S * 2
    sampler.sample()
    assert line("inference_queue_length_peak").endswith(" 0.0")
    assert 'inference_queue_length_peak{task="remote"}' not in meters.render()[0].decode()
