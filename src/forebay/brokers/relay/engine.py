"""Relay: a broker in front of a store that servers share: the store decides, a message broker delivers."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, cast

from forebay.brokers.relay.hints import Signer
from forebay.brokers.relay.link import Link
from forebay.brokers.relay.receiver import Receiver
from forebay.brokers.relay.reconciler import Reconciler
from forebay.brokers.relay.sender import Sender
from forebay.brokers.shared.bells import Bells
from forebay.brokers.shared.news import News
from forebay.core.job import Lease
from forebay.core.lifecycle import State
from forebay.errors import ConfigError
from forebay.ports.broker import Broker, Change, Doorbell
from forebay.ports.clock import Clock
from forebay.ports.delivery import Delivered
from forebay.ports.hinted import Hinted, Source, hinted_of
from forebay.ports.transport import Traits, Transport

OnDown = Callable[[BaseException], None]


def _unheard(_: BaseException) -> None:
    return


class Relay:
    """A ports.broker.Broker. Every verb is the store's; what it made durable is announced afterwards, and its
    doorbell rings for what this process did and for hints that come. While the message broker is away it
    rings for what others did, too, as the store alone would."""

    def __init__(
        self,
        store: Broker,
        hinted: Hinted,
        transport: Transport,
        signer: Signer,
        clock: Clock,
        *,
        on_down: OnDown,
        on_up: Callable[[], None],
    ) -> None:
        self.store = store
        self.delivery = self
        self._hinted = hinted
        self._signer = signer
        self._clock = clock
        self._bells = Bells()
        self._link = Link(transport, on_down=on_down, on_up=on_up)
        self._sender = Sender(self._link, signer, clock, cry=hinted.cry)
        self._receivers: dict[str, Receiver] = {}
        self._reconciler = Reconciler(
            store, hinted, self._link, self._sender, self._receivers, clock, ring=self._ring
        )
        self._unhang = hinted.on_told(self._heard)
        self._closed = False

    @classmethod
    async def open(
        cls,
        store: Broker,
        transport: Transport,
        *,
        clock: Clock,
        on_down: OnDown = _unheard,
        on_up: Callable[[], None] = lambda: None,
    ) -> "Relay":
        """Return a relay of a store and a transport that are open; it closes both.

        `on_down` hears why when the broker went away, `on_up` when it is back. `clock` is this machine's.
        Raises ConfigError for a store that has one owner, and what the store raises; both are closed then.
        """
        hinted = hinted_of(store)
        try:
            if hinted is None:
                raise ConfigError("store: a message broker needs a store that servers share")
            signer = Signer(await hinted.secret())
        except BaseException:
            try:
                await transport.close()
            finally:
                await store.close()
            raise
        relay = cls(store, hinted, transport, signer, clock, on_down=on_down, on_up=on_up)
        relay._sender.start()
        relay._reconciler.start()
        return relay

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    @property
    def traits(self) -> Traits:
        """What the message broker can and cannot do."""
        return self._link.traits

    def lease(
        self, task: str, *, limit: int, lease_s: float, worker: str, now: float
    ) -> Awaitable[list[Lease]]:
        """Grant up to `limit` ready jobs, most urgent first."""
        receiver = self._receiver(task)
        mark = receiver.line.mark()
        taken = self.store.lease(task, limit=limit, lease_s=lease_s, worker=worker, now=now)
        return self._leased(receiver, limit, mark, taken)

    async def _leased(
        self, receiver: Receiver, asked: int, mark: int, taken: Awaitable[list[Lease]]
    ) -> list[Lease]:
        leases = await taken
        if self._closed:
            return leases
        pending, silent, ids = self._sender.pending, self._sender.silent, list[str]()
        for lease in leases:
            if not pending.drop(lease.job.task, lease.job.id):  # else no hint of it is out
                ids.append(lease.job.id)
        unhinted = len(leases) - len(ids)
        receiver.granted(ids, asked=asked - unhinted, mark=mark, silent=silent)
        for job_id in ids:
            silent.discard(job_id)
        return leases

    async def pause(self, task: str, *, paused: bool, now: float) -> None:
        """Stop or resume granting leases of one task, durably."""
        await self.store.pause(task, paused=paused, now=now)
        if not paused:
            self._sender.announce(task)

    def on_work(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a doorbell; returns the way to remove it."""
        return self._bells.on_work(doorbell)

    def told(self) -> Delivered:
        """Return what became of hints so far."""
        held = sum(receiver.line.held for receiver in self._receivers.values())
        events = {**self._link.events, "outages": self._link.outages}
        name = self._link.traits.name
        return Delivered(
            name, self._link.up, events, dict(self._link.requests), held, len(self._sender.pending)
        )

    async def close(self) -> None:
        """Finish what was begun and let go of everything. Twice is harmless."""
        try:
            if not self._closed:
                self._closed = True
                await self._sender.flush()
                await self._stop()
        finally:
            await self.store.close()

    async def abandon(self) -> None:
        """Send and acknowledge nothing more: what `kill -9` does. The store is the caller's to end."""
        if not self._closed:
            self._closed = True
            await self._stop()

    async def _stop(self) -> None:
        self._unhang()
        await self._reconciler.close()
        await self._sender.stop()
        await asyncio.gather(*(receiver.close() for receiver in self._receivers.values()))
        self._bells.clear()
        await self._link.close()

    def _receiver(self, task: str) -> Receiver:
        receiver = self._receivers.get(task)
        if receiver is None:
            receiver = self._receivers[task] = Receiver(
                task, self._link, self._signer, self._hinted, self._clock, ring=self._ring
            )
        return receiver

    def _heard(self, source: Source, work: Collection[str], changes: Sequence[Change]) -> None:
        """The store told what is durable, and who did it."""
        if source is Source.OWN:
            self._announce(changes)
        elif source is Source.NOBODYS:
            for change in changes:
                if change.state is State.QUEUED:
                    self._sender.silent.add(change.job_id)
        if source is not Source.OTHERS or not self._link.up:
            for task in work:
                self._ring(task)

    def _announce(self, changes: Sequence[Change]) -> None:
        last = {change.job_id: change.state for change in changes}
        for change in changes:
            if change.state is State.QUEUED:
                if last[change.job_id] is State.QUEUED:
                    self._sender.announce(change.task, change.job_id)
                else:  # leased in the same transaction
                    self._sender.silent.add(change.job_id)
            elif change.state is State.DEAD:
                self._sender.bury(change.task, change.job_id)

    def _ring(self, task: str) -> None:
        news = News()
        news.ready((task,))
        self._bells.tell(news)


def relayed(relay: Relay) -> Broker:
    """Return a relay as the Broker that it is: most of its verbs are the store's own."""
    return cast("Broker", relay)
