"""Watch: looks at a server's metrics page, now and then, and has a gate decide whether calls may begin."""

import asyncio
import math
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from forebay.core.saturation import Change, SaturationGate, SaturationSpec
from forebay.core.upstream import clipped
from forebay.node.caller import KEPT_ALIVE_S, NO_TIMEOUTS
from forebay.ports.clock import Clock

LOOK_S: Final = 1.0  # for a whole look
PAGE_BYTES_MAX: Final = 1024 * 1024  # of a page; a longer one has no value
SERIES_BYTES_MAX: Final = 64 * 1024  # of the lines of the metric: they are parsed in the server's own loop


class Look(NamedTuple):
    """What a look found; without a value, why there is none."""

    value: float | None
    why: str = ""


class NoValueError(Exception):
    """The page has no value that can be gone by; the text says why."""


class Page:
    """Fetches one page and finds the value. Follows no redirect, uses no proxy, keeps no cookie."""

    def __init__(self, spec: SaturationSpec, *, agent: str) -> None:
        self._spec = spec
        ours = [("accept", "text/plain"), ("accept-encoding", "identity"), ("user-agent", agent)]
        given = {name.lower() for name, _ in spec.headers}
        self._headers = [*(pair for pair in ours if pair[0] not in given), *spec.headers]
        self._transport = httpx.AsyncHTTPTransport(
            verify=spec.url.startswith("https:"),
            trust_env=False,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=KEPT_ALIVE_S),
        )

    async def look(self) -> Look:
        """Return the value, or why there is none. Raises nothing, whatever the page is."""
        try:
            async with asyncio.timeout(LOOK_S):
                return Look(value_in(await self._fetch(), self._spec))
        except TimeoutError:
            return Look(None, f"a look at its metrics took longer than {LOOK_S:g} s")
        except NoValueError as error:
            return Look(None, str(error))
        except Exception as error:  # the looks must go on, whatever a page does to those who read it
            return Look(None, f"its metrics cannot be read: {clipped(str(error) or type(error).__name__)}")

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.aclose()

    async def _fetch(self) -> bytes:
        request = httpx.Request(
            "GET", self._spec.url, headers=self._headers, extensions={"timeout": NO_TIMEOUTS}
        )
        response = await self._transport.handle_async_request(request)
        try:
            if response.status_code != 200:
                raise NoValueError(f"its metrics page answered {response.status_code}")
            coding = response.headers.get("content-encoding", "identity").lower()
            if coding != "identity":
                raise NoValueError(
                    f"its metrics page is encoded ({clipped(coding)}), which was not asked for"
                )
            page = bytearray()
            async for piece in response.aiter_raw():
                page += piece
                if len(page) > PAGE_BYTES_MAX:
                    raise NoValueError(f"its metrics page is longer than {PAGE_BYTES_MAX:,} bytes")
            return bytes(page)
        finally:
            await response.aclose()


def value_in(page: bytes, spec: SaturationSpec) -> float:
    """Return the largest or the sum of the series that have the labels. A series that stands there twice
    counts once, with the larger value; one that is no finite number does not count. Raises NoValueError, and
    ValueError for lines that are none of the format."""
    name = re.escape(spec.metric.encode())
    if re.search(rb"(?m)^# TYPE %b counter\b" % name, page):
        raise NoValueError(f"{spec.metric} is a counter, which never falls: a gauge is needed")
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for family in text_string_to_metric_families(_lines_of(name, page, spec.metric)):
        for sample in family.samples:
            value = float(sample.value)
            if math.isfinite(value) and all(sample.labels.get(key, "") == text for key, text in spec.labels):
                series = tuple(sorted(sample.labels.items()))
                found[series] = max(value, found.get(series, value))
    if not found:
        labels = ",".join(f'{key}="{text}"' for key, text in spec.labels)
        raise NoValueError(f"its metrics page has no number for {clipped(spec.metric + f'{{{labels}}}')}")
    total = max(found.values()) if spec.of == "max" else math.fsum(found.values())
    if not math.isfinite(total):
        raise NoValueError(f"{spec.metric} adds up to no finite number")
    return total


def _lines_of(name: bytes, page: bytes, metric: str) -> str:
    """Return the lines of one metric: the rest of a page may be long, and is nothing to us."""
    lines: list[bytes] = []
    size = 0
    for match in re.finditer(rb"(?m)^%b[ \t{][^\n]*" % name, page):
        lines.append(match[0])
        size += len(match[0]) + 1
        if size > SERIES_BYTES_MAX:
            raise NoValueError(f"the series of {metric} are longer than {SERIES_BYTES_MAX:,} bytes")
    return b"\n".join(lines).decode("utf-8", "replace") + "\n"


class Watch:
    """Looks while there is work or the gate is closed, `every_s` from look to look, one at a time.

    `working` says whether a call is out. `on_look` hears of every look, and of the change it made. An idle
    server is not looked at: what begins after a silence begins before the first look is back.
    """

    def __init__(
        self,
        spec: SaturationSpec,
        *,
        clock: Clock,
        agent: str,
        working: Callable[[], bool],
        on_look: Callable[[SaturationGate, Change | None], None],
    ) -> None:
        self.gate = SaturationGate(spec.policy)
        self._page = Page(spec, agent=agent)
        self._clock = clock
        self._working = working
        self._on_look = on_look
        self._looked_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    def work(self) -> None:
        """A call begins: have a look, unless one is due already."""
        if self._timer is not None or self._looking is not None or self._closed:
            return
        wait_s = self.next_at - self._clock.now()
        wait_s = min(max(0.0, wait_s), self.gate.policy.every_s)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._begin)

    @property
    def next_at(self) -> float:
        """When the next look begins, at the earliest."""
        return self._looked_at + self.gate.policy.every_s

    async def close(self) -> None:
        """Look no more, and close the connection. Twice is harmless."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._page.close()

    def _begin(self) -> None:
        self._timer = None
        self._looked_at = self._clock.now()
        self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        try:
            value, why = await self._page.look()
        finally:
            self._looking = None
        if self._closed:
            return
        change = self.gate.see(value, now=self._clock.now(), why=why)
        if self.gate.closed or self._working():
            self.work()
        self._on_look(self.gate, change)
