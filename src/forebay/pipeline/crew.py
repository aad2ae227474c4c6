"""Crew: the replicas of one stage, each with a thread that takes frames, serves them and hands them on."""

import functools
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from forebay.core.accounts import Latencies
from forebay.core.breaker import Ending, Refused
from forebay.core.buffer import Reason
from forebay.core.lanes import StreamShare, Ticket
from forebay.declare import Device
from forebay.errors import AppError
from forebay.pipeline.calls import Calls, Failure, Job
from forebay.pipeline.ledger import Ledger
from forebay.pipeline.line import Line
from forebay.pipeline.replicas import DiedError, ProcessWorker, ThreadWorker, Worker
from forebay.pipeline.report import StageReport
from forebay.pipeline.shared import TaskWorker
from forebay.pipeline.stage import PER_GPU, FrameFacts, Stage

_log = logging.getLogger("forebay.streams")
_HELD_BACK: Final = object()  # by the breaker


def devices_of(stage: Stage, gpus: int) -> list[Device]:
    """Return where each replica computes: by turns on the GPUs there are, else on the CPU."""
    count = max(1, gpus) if stage.replicas == PER_GPU else int(stage.replicas)
    if not gpus:
        return [Device()] * count
    if stage.processes:  # each sees its own GPU alone
        return [Device("cuda", 0, number % gpus) for number in range(count)]
    return [Device("cuda", number % gpus, number % gpus) for number in range(count)]


def _worker(stage: Stage, device: Device, now: Callable[[], float]) -> Worker:
    if stage.task is not None:
        return TaskWorker(stage, stage.task, now)
    return ProcessWorker(stage, device, now) if stage.processes else ThreadWorker(stage, device)


class Crew:
    """The replicas of one stage and the line before it."""

    def __init__(
        self,
        stage: Stage,
        *,
        gpus: int,
        shares: Mapping[str, StreamShare],
        ledger: Ledger,
        now: Callable[[], float],
    ) -> None:
        devices = devices_of(stage, gpus)
        self.stage = stage
        self.line = Line(stage, len(devices), shares, ledger, now)
        self.hand_on: Callable[[Ticket, Any], None]
        self.ended: Callable[[], None]
        self.faulted: Callable[[BaseException], None]
        self.workers: list[Worker] = [_worker(stage, device, now) for device in devices]
        self._fallback = None if stage.fallback is None else Calls(stage.fallback)
        self._fallback_device = devices[0]
        self._ledger = ledger
        self._now = now
        self._lock = threading.Lock()
        self._left = len(self.workers)
        self._over = threading.Event()
        self._go = threading.Event()
        self._started = False
        self._ready: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._calls = self._handed_on = 0
        self._service = Latencies()
        self._last_error = ""

    @property
    def replicas(self) -> int:
        """How many there are."""
        return len(self.workers)

    # ---- the beginning and the end ----------------------------------------------------------------------

    def load(self) -> None:
        """Begin to load every replica, each in the thread that will serve with it: a process is tied to the
        life of the thread that started it."""
        if self._fallback is not None:
            self._begin(self._load_fallback, "fallback")
        for number, worker in enumerate(self.workers):
            self._begin(functools.partial(self._life, worker), str(number))

    def _begin(self, what: Callable[[], None], name: str) -> None:
        threading.Thread(target=what, name=f"forebay-{self.stage.name}-{name}", daemon=True).start()

    def loaded(self) -> None:
        """Return when all have loaded. Raises the first error there was."""
        for _ in range(len(self.workers) + (self._fallback is not None)):
            error = self._ready.get()
            if error is not None:
                raise error

    def start(self) -> None:
        """Begin to serve."""
        self._started = True
        self._go.set()

    def _load_fallback(self) -> None:
        assert self._fallback is not None
        try:
            self._fallback.load(self._fallback_device)
        except Exception as error:
            self._ready.put(
                AppError(f"stage {self.stage.name}: its fallback could not be loaded: {error!r:.500}")
            )
        else:
            self._ready.put(None)

    def _life(self, worker: Worker) -> None:
        try:
            worker.load()
        except BaseException as error:
            self._ready.put(error)
            return
        self._ready.put(None)
        self._go.wait()
        if self._started:  # else another stage could not be loaded; once begun, each says that it has ended
            self._work(worker)

    def abandon(self) -> None:
        """Serve nothing more; processes end in the middle of what they do."""
        self._over.set()
        self.line.abandon()
        if self.stage.processes:
            self.close()

    def close(self) -> None:
        """End the processes, and what waits to begin."""
        self._over.set()
        self._go.set()
        for worker in self.workers:
            worker.close()

    # ---- serving ----------------------------------------------------------------------------------------

    def _work(self, worker: Worker) -> None:
        alive = True
        while alive and (frames := self.line.take()) is not None:
            try:
                alive = self._serve(worker, frames)
            except (
                BaseException
            ) as error:  # a fault of our own: the run ends with it, and nobody waits for ever
                self.faulted(error)
                alive = False
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self.line.abandon()  # nobody is left to serve what may still come
            self.ended()

    def _serve(self, worker: Worker, frames: list[Ticket]) -> bool:
        """Serve frames; returns whether the worker can go on."""
        permit = self.line.ask()
        if isinstance(permit, Refused):
            outcomes, died = self._instead(frames), False
        else:
            outcomes, ending, died = self._called(worker, frames)
            self.line.called(permit, ending)
        for ticket, outcome in zip(frames, outcomes, strict=True):
            self.line.finish(ticket, outcome, self._finish)
        return worker.revive(self._over) if died else True

    def _called(self, worker: Worker, frames: list[Ticket]) -> tuple[list[Any], Ending, bool]:
        began = self._now()
        try:
            outcomes = worker.run(self._jobs(frames))
        except DiedError as error:
            self._note(str(error))
            if not self._over.is_set():
                _log.warning(
                    "stage %s: %s; %d frames are lost, it starts again", self.stage.name, error, len(frames)
                )
            return [Reason.LOST] * len(frames), Ending.BAD, True
        took_s = self._now() - began
        failures = [one for one in outcomes if isinstance(one, Failure)]
        with self._lock:
            self._calls += 1
            self._service.add(took_s)
        if not failures:
            return outcomes, Ending.GOOD, False
        self._note(f"{failures[0].kind}: {failures[0].text}")
        return outcomes, Ending.IGNORED if all(one.ignored for one in failures) else Ending.BAD, False

    def _instead(self, frames: list[Ticket]) -> list[Any]:
        if self._fallback is None:
            return [_HELD_BACK] * len(frames)
        for ticket in frames:
            ticket.fallback = True
        return self._fallback.run(self._jobs(frames))

    def _jobs(self, frames: list[Ticket]) -> list[Job]:
        jobs: list[Job] = []
        for ticket in frames:
            step = self.line.step_of(ticket)
            deadline = None if ticket.deadline == float("inf") else ticket.deadline
            level = min(ticket.degraded, len(self.stage.terms.ladder))
            facts = FrameFacts(ticket.stream, ticket.seq, ticket.captured_at, deadline, level, ticket.facts)
            jobs.append(Job(ticket.load, facts, step.scale))
        return jobs

    def _finish(self, ticket: Ticket, outcome: Any) -> None:
        if isinstance(outcome, Failure):
            self._ledger.drop(ticket, Reason.FAILED, self.stage.name)
        elif isinstance(outcome, Reason):  # the task did not take it, or gave it up
            self._ledger.drop(ticket, outcome, self.stage.name)
        elif outcome is _HELD_BACK:
            self._ledger.drop(ticket, Reason.BREAKER, self.stage.name)
        else:
            with self._lock:
                self._handed_on += 1
            self.hand_on(ticket, outcome)

    def _note(self, text: str) -> None:
        with self._lock:
            self._last_error = text

    # ---- looking ----------------------------------------------------------------------------------------

    def report(
        self, dropped: "Counter[tuple[str, str]]", now: float, seconds: float, producers: int
    ) -> StageReport:
        """Return what this stage did. `producers` is how many threads put into its line."""
        depth, size_b, level, waited_s, idle_s, oldest_at = self.line.looks()
        breaker = self.line.breaker()
        restarts: Counter[str] = Counter()
        for worker in self.workers:
            restarts.update(worker.restarts)
        terms = self.stage.terms
        with self._lock:
            return StageReport(
                stage=self.stage.name,
                depth=depth,
                capacity=terms.items_max,
                size_bytes=size_b,
                capacity_bytes=terms.bytes_max,
                oldest_age_s=0.0 if oldest_at is None else max(0.0, now - oldest_at),
                level=level,
                replicas=self.replicas,
                processes=self.stage.processes,
                calls=self._calls,
                handed_on=self._handed_on,
                dropped={
                    reason: n for (stage, reason), n in sorted(dropped.items()) if stage == self.stage.name
                },
                service_p50_s=self._service.quantile(0.5),
                service_p99_s=self._service.quantile(0.99),
                producer_wait_ratio=min(1.0, waited_s / (seconds * max(1, producers))),
                consumer_idle_ratio=min(1.0, idle_s / (seconds * self.replicas)),
                restarts=dict(restarts),
                breaker=None if breaker is None else breaker[0],
                breaker_trips=0 if breaker is None else breaker[1],
                last_error=self._last_error,
            )
