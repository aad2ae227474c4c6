"""Running: a pipeline at work: threads that pump, serve and hand on, from the first frame to the last."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from forebay.clock import SystemClock
from forebay.core.accounts import Latencies
from forebay.core.lanes import StreamShare, Ticket
from forebay.errors import ForebayError
from forebay.pipeline.crew import Crew
from forebay.pipeline.ledger import Ledger
from forebay.pipeline.memory import Memory
from forebay.pipeline.outlet import Outlet
from forebay.pipeline.pump import Pump, source_of
from forebay.pipeline.quota import CpuQuota
from forebay.pipeline.report import Report, stream_report
from forebay.pipeline.stage import Stage

GRACE_S: Final = 10.0
STATES: Final = ("starting", "running", "draining", "ended")


class Running:
    """What `Pipeline.start` returns. `wait` for its end, `stop` it, look at its `report`."""

    def __init__(
        self,
        name: str,
        stages: tuple[Stage, ...],
        sources: tuple[Any, ...],
        sinks: tuple[Any, ...],
        *,
        shares: Mapping[str, StreamShare],
        deadline_s: float | None,
        bytes_max: int | None,
        gpus: int,
    ) -> None:
        self.name = name
        self.clock = SystemClock()
        now = self.clock.now
        self._started_at = now()
        self._ended_at: float | None = None
        self._state = STATES[0]
        self._done = threading.Event()
        self._lock = threading.Lock()
        self.errors: list[BaseException] = []
        self._ledger = Ledger()
        self._quota = CpuQuota()
        self._outlet = Outlet(sinks)
        self._memory = Memory([stage.terms for stage in stages], [stage.name for stage in stages], bytes_max)
        self.crews: list[Crew] = []
        for number, stage in enumerate(stages):
            crew = Crew(stage, gpus=gpus, shares=shares, ledger=self._ledger, now=now)
            crew.hand_on = self._hander(number, last=number == len(stages) - 1)
            crew.ended = self._ender(number, last=number == len(stages) - 1)
            crew.faulted = self._fail
            self.crews.append(crew)
        self._pumps = [
            Pump(
                source_of(source, number, now),
                self.crews[0].line,
                self._ledger,
                now=now,
                deadline_s=deadline_s,
                streams=lambda: sum(len(pump.names) for pump in self._pumps),
                checked=lambda size_b: self._memory.seen(0, size_b),
            )
            for number, source in enumerate(sources)
        ]
        for pump in self._pumps:
            if (size_b := pump.source.item_bytes_max) is not None:
                self._memory.seen(0, size_b)
        self.crews[0].line.on_room = self._press
        self._pumps_left = len(self._pumps)

    # ---- the beginning ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Load every replica, then let the frames in. Raises AppError when one cannot be loaded."""
        try:
            for crew in self.crews:
                crew.load()
            for crew in self.crews:
                crew.loaded()
        except BaseException:
            self._close()
            raise
        self._go_on("running")
        self._started_at = self.clock.now()
        for crew in self.crews:
            crew.start()
        for number, pump in enumerate(self._pumps):
            threading.Thread(
                target=self._pump, args=(pump,), name=f"forebay-source-{number}", daemon=True
            ).start()

    def _pump(self, pump: Pump) -> None:
        pump.run()
        if pump.error is not None:
            self.errors.append(pump.error)
        with self._lock:
            self._pumps_left -= 1
            last = not self._pumps_left
        if last:
            self._go_on("draining")
            self.crews[0].line.end()

    def _go_on(self, state: str) -> None:
        """Be in a later state; threads that come late with an earlier one change nothing."""
        with self._lock:
            self._state = max(self._state, state, key=STATES.index)

    def _press(self) -> None:
        for pump in self._pumps:
            pump.press()

    # ---- between stages ---------------------------------------------------------------------------------

    def _hander(self, number: int, *, last: bool) -> Callable[[Ticket, Any], None]:
        def hand_on(ticket: Ticket, value: Any) -> None:
            if last or value is None:
                now = self.clock.now()
                ticket.load = None
                if last:
                    self._outlet.write(ticket, value, now)
                self._ledger.serve(ticket, now)
                return
            ticket.load = value
            ticket.size_b = weight_of(value)
            try:
                self._memory.seen(number + 1, ticket.size_b)
            except ForebayError as error:
                self._fail(error)
            self.crews[number + 1].line.put(ticket)

        return hand_on

    def _ender(self, number: int, *, last: bool) -> Callable[[], None]:
        def ended() -> None:
            if last:
                self._close()
            else:
                self.crews[number + 1].line.end()

        return ended

    def _fail(self, error: BaseException) -> None:
        """End at once because of an error that is no single frame's."""
        with self._lock:
            first = not self.errors
            self.errors.append(error)
        if first:
            threading.Thread(target=self.stop, args=(0.0,), name="forebay-stop", daemon=True).start()

    # ---- the end ----------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it has ended, after `timeout` seconds at most."""
        return self._done.wait(timeout)

    def stop(self, grace_s: float = GRACE_S) -> bool:
        """Close the sources, serve what waits for `grace_s` at most, drop the rest as `ended`.

        Returns whether everything has ended; False when a thread of user code hangs, which nobody can end.
        """
        self._go_on("draining")
        for pump in self._pumps:
            pump.stop()
        self.crews[0].line.end()
        if not self._done.wait(grace_s):
            for crew in self.crews:
                crew.abandon()
            self._done.wait(max(grace_s, 1.0))
        return self._done.is_set()

    def _close(self) -> None:
        for crew in self.crews:
            crew.close()
        self._outlet.close()
        self._ended_at = self.clock.now()
        self._go_on("ended")
        self._done.set()

    def report(self) -> Report:
        """Return what was done so far."""
        ended_at = self._ended_at
        now = self.clock.now() if ended_at is None else ended_at
        seconds = max(1e-9, now - self._started_at)
        dropped = self._ledger.dropped_by_stage()
        depths = [crew.line.depths() for crew in self.crews]
        streams = tuple(
            stream_report(name, account, sum(one.get(name, 0) for one in depths), self._source_counts(name))
            for name, account in sorted(self._ledger.streams().items())
        )
        quota = self._quota.look()
        producers = [len(self._pumps), *(crew.replicas for crew in self.crews)]
        return Report(
            pipeline=self.name,
            state=self._state,
            seconds=seconds,
            streams=streams,
            stages=tuple(
                crew.report(dropped, now, seconds, producers[number])
                for number, crew in enumerate(self.crews)
            ),
            sink_errors=self._outlet.errors,
            sinks=self._outlet.counts(),
            cpus=None if quota is None else quota.cpus,
            throttled=None if quota is None else quota.stat,
        )

    def _source_counts(self, stream: str) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for pump in self._pumps:
            if stream in pump.names:
                for key, count in pump.source.counts().items():
                    found[key] = found.get(key, 0) + count
        return found

    def latencies(self) -> Mapping[str, Latencies]:
        """Return the latencies of each stream, from capture, since the start."""
        return {name: account.latency for name, account in self._ledger.streams().items()}


def weight_of(value: Any, depth: int = 3) -> int:
    """Return about how many bytes a value holds: its arrays, bytes and texts."""
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    if depth and isinstance(value, list | tuple):
        return sum(weight_of(one, depth - 1) for one in value)  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    if depth and isinstance(value, dict):
        return sum(weight_of(one, depth - 1) for one in value.values())  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    return 8
