"""Run an application, written as text, in a real child, and collect what comes back."""

import asyncio
import json
import os
import textwrap
from collections.abc import Awaitable, Callable

from forebay.clock import SystemClock
from forebay.node.death import Death
from forebay.node.frames import Checkpoints, ItemResult, RunItem
from forebay.node.replica import Replica, ReplicaSpec

WAIT_MAX_S = 50.0
HEAD = """import os, sys, time, asyncio, signal, ctypes
import forebay
from forebay import Context, Failed, Retry
from forebay import Permanent, Device
app = forebay.App()
"""


class Watcher:
    """A ReplicaOwner that remembers."""

    def __init__(self) -> None:
        self.results: dict[int, ItemResult] = {}
        self.passes: list[int] = []
        self.reports: list[tuple[int, float, str]] = []
        self.checkpoints: list[tuple[int, bytes]] = []
        self.parts: list[tuple[int, int, bytes]] = []
        self.returned: list[int] = []
        self.returns = 0
        self.groups: list[int] = []
        self.busy_s = 0.0
        self.deaths: list[Death] = []
        self.ready = 0
        self._news = asyncio.Event()

    def on_ready(self, replica, ready) -> None:
        self.ready += 1
        self._news.set()

    def on_results(self, replica, results, busy_s) -> None:
        assert not self.deaths, "results after a death"
        for result in results:
            assert result.tag not in self.results, "two results for one item"
            self.results[result.tag] = result
        self.groups.append(len(results))
        self.busy_s += busy_s
        self._news.set()

    def on_pass(self, replica, run, size) -> None:
        self.passes.append(size)
        self._news.set()

    def on_progress(self, replica, reports) -> None:
        self.reports += reports
        self._news.set()

    def on_news(self, replica, news) -> None:
        if isinstance(news, Checkpoints):
            self.checkpoints += news.items
        else:
            assert not self.results.keys() & {part[0] for part in news.items}, "a part after its item's end"
            self.parts += news.items
        self._news.set()

    def on_returned(self, replica, tags) -> None:
        self.returned += tags
        self.returns += 1
        self._news.set()

    def on_death(self, replica, death) -> None:
        self.deaths.append(death)
        self._news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Return when the condition holds; it is looked at when something arrives, and now and then."""
        async with asyncio.timeout(WAIT_MAX_S):
            while not condition():
                self._news.clear()
                try:
                    await asyncio.wait_for(self._news.wait(), 0.02)
                except TimeoutError:
                    continue

    async def finished(self, count: int) -> dict[int, ItemResult]:
        """Return the results when there are `count`."""
        await self.until(lambda: len(self.results) >= count or self.deaths)
        assert not self.deaths, self.deaths
        return self.results

    def outputs(self) -> list[object]:
        """Return the outputs in the order of tags; an error shows as its code."""
        return [
            result.error.code if result.output is None else json.loads(result.output)
            for _, result in sorted(self.results.items())
        ]


def written(tmp_path, source: str, name: str = "application.py") -> str:
    """Return the path of an application with this source after the usual head."""
    path = tmp_path / name
    path.write_text(HEAD + textwrap.dedent(source))
    return str(path)


def items(*payloads: object, first: int = 0) -> list[RunItem]:
    """Return one item per payload, tags counting from `first`."""
    return [
        payload
        if isinstance(payload, RunItem)
        else RunItem(first + index, json.dumps(payload).encode(), 1, f"job-{first + index}")
        for index, payload in enumerate(payloads)
    ]


def spec_of(app: str, *tasks: str, **changes) -> ReplicaSpec:
    """Return a spec for tests."""
    return ReplicaSpec(**{"app": app, "tasks": tasks, "env": dict(os.environ), **changes})


def in_child(
    tmp_path,
    source: str,
    doing: Callable[[Replica, Watcher], Awaitable[None]],
    *tasks: str,
    watcher: Watcher | None = None,
    **changes,
) -> Watcher:
    """Start a child with this application, wait until it is ready, do something, and end it."""
    app = written(tmp_path, source)
    seen = watcher

    async def main() -> Watcher:
        watcher = seen or Watcher()
        replica = await Replica.start(spec_of(app, *tasks, **changes), watcher, clock=SystemClock())
        try:
            await watcher.until(lambda: watcher.ready or watcher.deaths)
            await doing(replica, watcher)
        finally:
            replica.kill("the test is over")
            await replica.wait()
        return watcher

    return asyncio.run(main())


def run_all(tmp_path, source: str, task: str, payloads: list[object], *, singles: bool = True, **changes):
    """Return the watcher after all payloads have a result."""

    async def doing(replica: Replica, watcher: Watcher) -> None:
        assert replica.run(1, task, items(*payloads), singles=singles)
        await watcher.finished(len(payloads))

    return in_child(tmp_path, source, doing, task, **changes)
