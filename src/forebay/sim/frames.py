"""Frames: cameras, one stage's queue and its replicas in virtual time; decided as in a pipeline."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forebay.core.accounts import Accounts
from forebay.core.buffer import Reason
from forebay.core.gate import Gate, GateTerms, Let
from forebay.core.lanes import StreamShare, Ticket
from forebay.sim.chance import Chance

ServiceOf = Callable[[Sequence[float]], float]  # the scales of a batch's frames -> seconds of one call


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """Frames at a rate, each early or late by a share of the pause between two."""

    stream: str
    per_s: float
    from_s: float = 0.0
    until_s: float
    size_b: int = 921_600
    jitter: float = 0.2


class Offer(NamedTuple):
    """What the queue said of one frame, for a comparison."""

    at: float
    ticket: tuple[str, int, float, float, int]  # stream, number, captured, deadline, bytes
    entered: bool
    reason: str | None
    shed: tuple[tuple[str, int, str], ...]


class Take(NamedTuple):
    """What was taken to be served, and what was late."""

    at: float
    most: int
    frames: tuple[tuple[str, int], ...]
    late: tuple[tuple[str, int], ...]


class FrameWorld:
    """Plays live cameras against one stage. `accounts` say what became of every frame, `trace` what was
    decided when."""

    def __init__(
        self,
        cameras: Sequence[Camera],
        terms: GateTerms,
        service: ServiceOf,
        *,
        replicas: int = 1,
        batch_max: int = 1,
        deadline_s: float = float("inf"),
        shares: Mapping[str, StreamShare] | None = None,
        seed: int = 1,
    ) -> None:
        self.gate = Gate(terms, shares)
        self.accounts = Accounts()
        self.trace: list[Offer | Take] = []
        self._cameras = cameras
        self._service = service
        self._batch_max = batch_max
        self._deadline_s = deadline_s
        self._idle = replicas
        self._chance = Chance(seed)
        self._waiting: dict[str, Ticket] = {}  # of a policy that waits: what a newer frame is to replace
        self._running: dict[int, list[Ticket]] = {}

    def run(self) -> Accounts:
        """Return the accounts when every frame is served or dropped."""
        events: list[tuple[float, int, str, int]] = []  # when, order, camera or "", size or run
        for camera in self._cameras:
            for at in self._instants(camera):
                events.append((at, len(events), camera.stream, camera.size_b))
        heapq.heapify(events)
        order = len(events)
        while events:
            now, _, stream, number = heapq.heappop(events)
            if stream:
                self._come(stream, number, now)
            else:
                for ticket in self._running.pop(number):
                    self.accounts.serve(ticket, now=now)
                self._idle += 1
            while self._idle and self.gate.depth:
                frames = self._take(now)
                if frames:
                    order += 1
                    took_s = self._service([self.gate.step_of(one).scale for one in frames])
                    self._running[order] = frames
                    self._idle -= 1
                    heapq.heappush(events, (now + took_s, order, "", order))
            if not events:
                for ticket in self._waiting.values():  # none newer came
                    self.accounts.drop(ticket, Reason.ENDED)
        return self.accounts

    def _instants(self, camera: Camera) -> list[float]:
        pause_s = 1.0 / camera.per_s
        count = int((camera.until_s - camera.from_s) * camera.per_s)
        shift = self._chance.random() * pause_s  # cameras do not tick together
        instants: list[float] = []
        for number in range(count):
            off = (self._chance.random() - 0.5) * camera.jitter * pause_s
            instants.append(camera.from_s + shift + number * pause_s + off)
        return instants

    def _come(self, stream: str, size_b: int, now: float) -> None:
        ticket = Ticket(stream, self.accounts.open(stream), now, now + self._deadline_s, size_b)
        waited = self._waiting.pop(stream, None)
        if waited is not None:
            self.accounts.drop(waited, Reason.REPLACED)
        let = self.gate.offer(ticket, now=now)
        for victim, reason in let.shed:
            self.accounts.drop(victim, reason)
        if let.reason is not None:
            self.accounts.drop(ticket, let.reason)
        elif not let.entered:
            self._waiting[stream] = ticket
        self._note(ticket, let, now)

    def _note(self, ticket: Ticket, let: Let, now: float) -> None:
        facts = (ticket.stream, ticket.seq, ticket.captured_at, ticket.deadline, ticket.size_b)
        shed = tuple((one.stream, one.seq, reason.value) for one, reason in let.shed)
        self.trace.append(
            Offer(now, facts, let.entered, None if let.reason is None else let.reason.value, shed)
        )

    def _take(self, now: float) -> list[Ticket]:
        taken = self.gate.take(self._batch_max, now=now)
        for late in taken.late:
            self.accounts.drop(late, Reason.LATE)
        self.trace.append(
            Take(
                now,
                self._batch_max,
                tuple((one.stream, one.seq) for one in taken.frames),
                tuple((one.stream, one.seq) for one in taken.late),
            )
        )
        return taken.frames
