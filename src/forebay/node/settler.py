"""Settler: stores what a Dispatcher decided, again and again until it is stored or worth nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from forebay.core.actions import Commit
from forebay.core.estimator import Estimator
from forebay.core.lifecycle import FINAL, Event, State
from forebay.errors import ForebayError, StoreBrokenError
from forebay.node.facts import LaneFacts
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock

T = TypeVar("T")

COMMITS_MAX = 20_000  # decided transitions not stored yet; past it nothing more is leased
COMMIT_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0)  # between tries to store what was decided


class Ops:
    """Calls to the engine that are on their way."""

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[Any]] = set()

    def begin(self, verb: Callable[[], Awaitable[T]]) -> "asyncio.Future[T]":
        """Start a verb of the engine now; what it raises at once is what its future raises."""
        future: asyncio.Future[T]
        try:
            future = asyncio.ensure_future(verb())
        except ForebayError as error:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    async def ended(self, wait_max_s: float) -> None:
        """Return when all have ended, or after `wait_max_s`."""
        if self._futures:
            await asyncio.wait(self._futures, timeout=wait_max_s)


class Settler:
    """Commits of one lane."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        ops: Ops,
        *,
        lease_s: float,
        facts: LaneFacts,
        estimators: Mapping[str, Estimator],
        on_failure: Callable[[str, BaseException], None],
        on_stored: Callable[[Commit], None],
    ) -> None:
        self.count = 0  # transitions on their way to the store
        self._broker = broker
        self._clock = clock
        self._ops = ops
        self._lease_s = lease_s
        self._facts = facts
        self._estimators = estimators
        self._on_failure = on_failure
        self._on_stored = on_stored

    @property
    def full(self) -> bool:
        """Whether so much waits to be stored that nothing more should be begun."""
        return self.count > COMMITS_MAX

    def commit(self, commit: Commit) -> None:
        """Begin to store these."""
        self.count += len(commit.transitions)
        now = self._clock.now()
        future = self._ops.begin(lambda: self._broker.commit(commit.transitions, now=now))
        future.add_done_callback(lambda done: self._committed(commit, done))

    def _committed(self, commit: Commit, done: "asyncio.Future[list[bool]]") -> None:
        if done.cancelled():
            self.count -= len(commit.transitions)
            return
        error = done.exception()
        if error is None:
            self._stored(commit, done.result())
            return
        self._on_failure("commit", error)
        if isinstance(error, StoreBrokenError):
            self.count -= len(commit.transitions)
        else:
            self._ops.begin(lambda: self._commit_again(commit))

    async def _commit_again(self, commit: Commit) -> None:
        """Try until it is stored or the leases have lapsed: the fence makes a repeat harmless."""
        give_up_at = self._clock.now() + self._lease_s
        tries = 0
        while self._clock.now() < give_up_at:
            await self._clock.sleep(COMMIT_WAITS_S[min(tries, len(COMMIT_WAITS_S) - 1)])
            tries += 1
            try:
                applied = await self._broker.commit(commit.transitions, now=self._clock.now())
            except StoreBrokenError as error:
                self._on_failure("commit", error)
                break
            except ForebayError as error:
                self._on_failure("commit", error)
            else:
                self._stored(commit, applied)
                return
        self.count -= len(commit.transitions)

    def _stored(self, commit: Commit, applied: list[bool]) -> None:
        self.count -= len(commit.transitions)
        now = self._clock.now()
        if self._estimators:
            self._learn(commit, applied, now)
        self._facts.settled(commit.transitions, commit.leases, applied, now)
        self._on_stored(commit)

    def _learn(self, commit: Commit, applied: list[bool], now: float) -> None:
        """Tell the estimators what left, what comes again, and when told jobs ended."""
        ended: dict[str, list[str]] = {}
        succeeded = State.SUCCEEDED
        for transition, lease, done in zip(commit.transitions, commit.leases, applied, strict=True):
            if not done:
                continue
            if transition.state is succeeded:  # nearly all
                ids = ended.get(lease.job.task)
                if ids is None:
                    ids = ended[lease.job.task] = []
                ids.append(transition.job_id)
                continue
            estimator = self._estimators.get(lease.job.task)
            if estimator is None:
                continue
            if transition.state in FINAL:
                estimator.settled(final=1, now=now)
                if transition.state is State.DEAD:
                    self._score(estimator, lease.job.task, (transition.job_id,), now)
                else:  # cancelled or expired: nobody foretold that
                    estimator.forget((transition.job_id,))
            elif transition.event is Event.FAILED:
                estimator.settled(final=0, again=1, now=now)
        for task, ids in ended.items():
            estimator = self._estimators.get(task)
            if estimator is None:
                continue
            estimator.settled(final=len(ids), now=now)
            self._score(estimator, task, ids, now)

    def _score(self, estimator: Estimator, task: str, job_ids: Sequence[str], now: float) -> None:
        for error_s in estimator.ended(job_ids, now=now):
            self._facts.foretold(task, error_s)
