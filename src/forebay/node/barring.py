"""Barring: keeps jobs and requests whose input is in quarantine from the children of a lane."""

from collections.abc import Callable, Mapping, Sequence

from forebay.core import answering, stopping
from forebay.core.actions import Commit
from forebay.core.dispatcher import Dispatcher
from forebay.core.job import Charge, Job, Lease
from forebay.core.quarantine import DeadlyInput
from forebay.core.task import TaskSpec
from forebay.errors import ForebayError
from forebay.node.facts import LaneFacts
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock


class Barring:
    """Asks the engine what is in quarantine, where that can have changed. Costs nothing while nothing is."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        broker: Broker,
        clock: Clock,
        specs: Mapping[str, TaskSpec],
        facts: LaneFacts,
    ) -> None:
        self._dispatcher = dispatcher
        self._hand = dispatcher.hand
        self._broker = broker
        self._clock = clock
        self._specs = specs
        self._facts = facts
        self._deadly = False  # a child died, and not everything decided since is stored

    def died(self) -> None:
        """A child died: something may go into quarantine, and what it had not begun is back in hand."""
        self._deadly = True
        self.look()

    def leased(self, task: str, leases: Sequence[Lease], *, asked: int, now: float) -> None:
        """Hand the engine's answer on: those that may not run are ended."""
        free = self._sift(leases)
        self._dispatcher.leased(task, free, asked=asked - (len(leases) - len(free)), now=now)

    def _sift(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        if not self._broker.quarantine.counts():
            return leases
        barred = [(lease, deadly) for lease in leases if (deadly := self._held(lease.job)) is not None]
        if not barred:
            return leases
        stopping.bar(self._hand, barred, self._clock.now())
        ids = {lease.job.id for lease, _ in barred}
        return [lease for lease in leases if lease.job.id not in ids]

    def look(self) -> None:
        """End those of the jobs in hand, with no child, that may not run."""
        if not self._broker.quarantine.counts():
            return
        for item in list(self._hand.waiting()):
            deadly = self._held(item.lease.job)
            if deadly is not None:
                self._hand.drop_waiting(item)
                stopping.bar(self._hand, [(item.lease, deadly)], self._clock.now())
        answering.bar_waiting(self._hand, self._held)

    async def charge(
        self,
        charges: Sequence[tuple[Job, Charge, float]],
        then: Callable[[], None],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        """Store what requests say of their inputs, tell what went into quarantine by it, and go on with
        `then`. What cannot be stored is told to `failed` and not counted."""
        found = False
        for job, charge, at in charges:
            try:
                await self._broker.quarantine.charge_input(job, charge, at=at)
            except ForebayError as error:
                failed("charge", error)
                continue
            deadly = self._broker.quarantine.held(job, now=self._clock.now())
            if deadly is not None and deadly.condemned_at == at:
                found = True
                self._facts.condemned(deadly)
        if found:
            self.look()
            then()

    def stored(self, commit: Commit, *, all_stored: bool) -> bool:
        """These were stored: tell what went into quarantine by them. Returns whether something did."""
        if not self._deadly:
            return False
        self._deadly = not all_stored
        now, found = self._clock.now(), False
        for step, lease in zip(commit.transitions, commit.leases, strict=True):
            if step.charge is None:
                continue
            deadly = self._broker.quarantine.held(lease.job, now=now)
            if deadly is not None and deadly.condemned_at == step.at:
                found = True
                self._facts.condemned(deadly)
        if found:
            self.look()
        return found

    def _held(self, job: Job) -> DeadlyInput | None:
        spec = self._specs.get(job.task)
        if spec is None or not spec.settle.condemns_at:
            return None
        deadly = self._broker.quarantine.held(job, now=self._clock.now())
        return deadly if deadly is not None and deadly.bars(job.created_at) else None
