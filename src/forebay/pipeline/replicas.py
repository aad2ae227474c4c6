"""Replicas: who serves a stage: a thread of this process, or a process that is started again when it dies."""

import multiprocessing
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

from forebay.core.restart import RestartPolicy
from forebay.declare import Device
from forebay.errors import AppError, NoMemoryError
from forebay.pipeline.calls import Calls, Failure, Job, failure_of
from forebay.pipeline.child import Errand, Order, pickled, serve
from forebay.pipeline.stage import Stage
from forebay.pipeline.wire import GoneError, Wire

_SPAWN: Final = multiprocessing.get_context("spawn")
END_WAIT_MAX_S: Final = 5.0
RESTART_WAIT_MAX_S: Final = 5.0  # while it dies at once, again and again; frames do not wait longer


class DiedError(Exception):
    """The process died with the frames it had; the text says how."""


class Worker(Protocol):
    """What serves."""

    restarts: "Counter[str]"

    def load(self) -> None:
        """Be ready. Raises AppError with one line when the stage cannot be loaded."""
        ...

    def run(self, jobs: list[Job]) -> list[Any]:
        """Return for each a value or a Failure. Raises DiedError when the process died with them."""
        ...

    def revive(self, over: threading.Event) -> bool:
        """After a DiedError: be ready again; False when told to end meanwhile."""
        ...

    def close(self) -> None:
        """End."""
        ...


class ThreadWorker:
    """User code in this process."""

    def __init__(self, stage: Stage, device: Device) -> None:
        self.restarts: Counter[str] = Counter()
        self._stage = stage
        self._device = device
        self._calls = Calls(stage.callee, stage.ignore)

    def load(self) -> None:
        """Make the class and load it."""
        try:
            self._calls.load(self._device)
        except Exception as error:
            raise _not_loaded(self._stage, failure_of(error)) from error

    def run(self, jobs: list[Job]) -> list[Any]:
        """Call it."""
        return self._calls.run(jobs)

    def revive(self, over: threading.Event) -> bool:
        """Return True: it does not die."""
        return True

    def close(self) -> None:
        """Do nothing: it ends with its thread."""


class ProcessWorker:
    """User code in a process of its own."""

    def __init__(self, stage: Stage, device: Device, now: Callable[[], float]) -> None:
        self.restarts: Counter[str] = Counter()
        self._stage = stage
        self._order = Order(pickled(Errand(stage.callee, stage.ignore)), device, os.getpid())
        self._now = now
        self._policy = RestartPolicy(cap_s=RESTART_WAIT_MAX_S)
        self._quick = 0
        self._ready_at: float | None = None
        self._wire: Wire | None = None
        self._process: Any = None
        self._pid: int | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The number of the process, None when there is none."""
        return self._pid

    def load(self) -> None:
        """Start it and wait until it has loaded."""
        ours, theirs = socket.socketpair()
        with ours, theirs, self._lock:
            if self._closed:
                raise AppError(f"stage {self._stage.name}: it ended while it loaded")
            process = _SPAWN.Process(
                target=serve,
                args=(theirs, self._order),  # no copy of it stays here: its end is the end of the process
                name=f"forebay {self._stage.name}",
                daemon=True,
            )
            process.start()
            self._process, self._pid = process, process.pid
            self._wire = Wire(ours.dup())
        try:
            head, _ = self._wire.receive(self._stage.load_timeout_s)
        except (GoneError, TimeoutError) as error:
            raise AppError(f"stage {self._stage.name}: {self._end(error)} while it loaded") from None
        if "failed" in head:
            self._end(None)
            raise _not_loaded(self._stage, Failure(*head["failed"]))
        self._ready_at = self._now()

    def run(self, jobs: list[Job]) -> list[Any]:
        """Send the frames, wait for the answers, and copy arrays out of the process's memory."""
        wire = self._wire
        if wire is None:
            raise DiedError("it is not running")
        try:
            parts = [wire.pack(job.value) for job in jobs]
        except Exception as error:
            return [failure_of(error)] * len(jobs)
        head = {"facts": [list(job.facts) for job in jobs], "scales": [job.scale for job in jobs]}
        try:
            wire.send(head, parts)
            answer, values = wire.receive(self._stage.timeout_s)
        except NoMemoryError as error:
            return [failure_of(error)] * len(jobs)
        except (GoneError, TimeoutError) as error:
            raise DiedError(self._end(error)) from None
        return [
            _kept(value) if outcome is None else Failure(*outcome)
            for value, outcome in zip(values, answer["outcomes"], strict=True)
        ]

    def revive(self, over: threading.Event) -> bool:
        """Start it again, after a pause that grows while it dies at once."""
        while not over.is_set():
            lived_s = None if self._ready_at is None else self._now() - self._ready_at
            self._quick = self._quick + 1 if self._policy.quick(lived_s=lived_s) else 1
            self._ready_at = None
            if over.wait(self._policy.delay_s(quick_deaths=self._quick)):
                return False
            try:
                self.load()
            except AppError:
                self.restarts["load"] += 1
                continue
            return True
        return False

    def close(self) -> None:
        """End the process: it has nothing in hand, or nothing that anybody waits for."""
        with self._lock:
            self._closed = True
        self._end(None)

    def _end(self, error: BaseException | None) -> str:
        """End the process, surely, and return how it ended."""
        with self._lock:  # of two that end it, one does
            process, wire = self._process, self._wire
            self._process = self._pid = self._wire = None
        if wire is not None:
            wire.close()
        if process is None:
            return "it is not running"
        late = isinstance(error, TimeoutError)
        if late:
            process.kill()
        process.join(0.5 if error is None else END_WAIT_MAX_S)
        if process.is_alive():
            process.kill()
            process.join(END_WAIT_MAX_S)
        code = process.exitcode
        process.close()
        if error is not None:
            self.restarts["timeout" if late else "signal" if (code or 0) < 0 else "exit"] += 1
        if late:
            return f"it was killed: a call took more than {self._stage.timeout_s:g} s"
        return (
            f"its process was ended by signal {-code}"
            if code and code < 0
            else f"its process ended with {code}"
        )


def _kept(value: Any) -> Any:
    """Return a value whose arrays are copies of ours: the memory they came in is used again."""
    if hasattr(value, "__array_interface__"):
        return value.copy()
    if isinstance(value, dict):
        return {key: _kept(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_kept(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _not_loaded(stage: Stage, failure: Failure) -> AppError:
    typed = failure.kind == "AttributeError" and "__main__" in failure.text  # nobody can import it from there
    hint = "; a stage in processes must stand in a file, not in a notebook or at a prompt" if typed else ""
    return AppError(f"stage {stage.name}: it could not be loaded: {failure.kind}: {failure.text}{hint}")
