"""Watch: turns what becomes durable about watched jobs into events: status, eta, and the end.

One listener at the engine serves all readers, and only while there are some. Listening is best effort, so a
watched job is looked at now and then anyway.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from forebay.core.estimator import Eta
from forebay.core.job import JobRecord
from forebay.core.lifecycle import FINAL, STATUS, State
from forebay.loops import goes_on
from forebay.ports.broker import Change
from forebay.server.channel import Channel, Stood, ToldEta, event_text
from forebay.server.eta import place
from forebay.server.front import Front
from forebay.server.live import Hub
from forebay.server.pressure import Pressure
from forebay.server.render import eta_of, job_json
from forebay.server.timeline import error_of
from forebay.server.times import stamp

TICK_S: Final = 1.0  # so often at most is the ETA of a job told
HEARTBEAT_S: Final = 15.0  # a reader that got nothing for so long gets a comment: proxies keep the stream
LOOKS_MAX: Final = 200  # jobs looked at in one tick without being asked
LOOKS_AT_ONCE: Final = 50
CHANGES_MAX: Final = 64  # states of one job heard of between two looks
ETA_MOVED_S: Final = 1.0  # an instant that moved less than this,
ETA_MOVED_SHARE: Final = 0.1  # or less than this share of what is left, has not moved

_encode = msgspec.json.encode


class Watch:
    """Looks at the jobs that somebody reads the events of."""

    def __init__(self, front: Front, pressure: Pressure, hub: Hub) -> None:
        self._front = front
        self._pressure = pressure
        self._hub = hub
        self._dirty: dict[Channel, None] = {}
        self._looking: asyncio.Task[None] | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def begin(self) -> None:
        """Listen: there is a reader."""
        if self._unsubscribe is None:
            self._unsubscribe = self._front.broker.on_change(self._heard)
            self._ticking = asyncio.ensure_future(goes_on(self._tick, "look at jobs that are watched"))

    def rest(self) -> None:
        """Stop listening when there is no reader: the engine need not name every change then."""
        if self._hub.readers == 0:
            self.close()

    def close(self) -> None:
        """Stop listening."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    def _heard(self, changes: Sequence[Change]) -> None:
        channels = self._hub.channels
        for change in changes:
            channel = channels.get(change.job_id)
            if channel is not None and channel.readers:
                if len(channel.changes) < CHANGES_MAX:
                    channel.changes.append(change.state)
                if change.settled is not None:
                    channel.settled = change.settled
                self._dirty[channel] = None
        if self._dirty and (self._looking is None or self._looking.done()):
            self._looking = asyncio.ensure_future(self._look_at_dirty())

    async def _look_at_dirty(self) -> None:
        while self._dirty:
            some = list(self._dirty)[:LOOKS_AT_ONCE]
            for channel in some:
                del self._dirty[channel]
            await self._look_at(some, eta=False)

    async def _tick(self) -> None:
        clock = self._front.clock
        await clock.sleep(TICK_S)
        now = clock.now()
        watched = [one for one in self._hub.channels.values() if one.readers and not one.ended]
        watched.sort(key=lambda channel: channel.looked_at)
        for at in range(0, min(len(watched), LOOKS_MAX), LOOKS_AT_ONCE):
            await self._look_at(watched[at : at + LOOKS_AT_ONCE], eta=True)
        for channel in list(self._hub.channels.values()):
            for reader in list(channel.readers):
                stands = self._front.watchman.stands(reader.who, now=now)
                if now - reader.wrote_at >= HEARTBEAT_S or not stands:
                    reader.ring()
        self._hub.expire()

    async def _look_at(self, channels: Iterable[Channel], *, eta: bool) -> None:
        found = await asyncio.gather(*(self._look(one, eta=eta) for one in channels), return_exceptions=True)
        for error in found:
            if isinstance(error, BaseException):  # the next tick looks again
                self._front.log.warning("event_look_failed", error=repr(error))

    async def _look(self, channel: Channel, *, eta: bool) -> None:
        now = channel.looked_at = self._front.clock.now()
        if channel.settled is not None:  # the engine told how it ended: nothing is read
            record: JobRecord | None = channel.settled.record()
        else:
            record = await self._front.broker.get(channel.job_id, now=now)
        if record is None:
            channel.gone = True
            channel.wake()
            return
        self.tell(channel, record)
        if eta and not channel.ended:
            await self._tell_eta(channel, record)

    def tell(self, channel: Channel, record: JobRecord) -> None:
        """Publish what the record and the states heard of say that was not said yet."""
        changes, channel.changes = channel.changes, []
        if channel.ended:
            return
        now, standing = self._front.clock.now(), record.standing
        told = (standing.state, standing.fence, standing.cancel_requested)
        if channel.state is None:
            channel.state = told
            channel.status = event_text("status", status_json(record, now))
        elif told != channel.state:
            for state in _between(channel.state, changes, standing.state):
                self._hub.publish(channel, "status", _bare(record.job.id, state))
            channel.state = told
            data = status_json(record, now)
            channel.status = event_text("status", data)
            self._hub.publish(channel, "status", data)
        if standing.state is State.RUNNING and standing.fence > channel.fence:
            self._hub.begun(channel, standing.fence, standing.attempt)
        elif standing.state in FINAL:
            self._hub.finish(channel, job_json(record, now=now))

    async def _tell_eta(self, channel: Channel, record: JobRecord) -> None:
        now = self._front.clock.now()
        position, eta = await place(self._front, self._pressure, record, now=now)
        if _moved(channel.eta, position, eta, now):
            first = channel.eta is None
            channel.eta = ToldEta(position, eta, now)
            if not first or eta is not None:
                self._hub.publish(channel, "eta", eta_json(position, eta, now))


def _between(before: Stood, changes: Sequence[State], after: State) -> list[State]:
    """Return the states a job passed through on its way from one look to the next."""
    states = list(changes)
    if states and states[0] is before[0]:
        del states[0]
    if states and states[-1] is after:
        del states[-1]
    return states


def _bare(job_id: str, state: State) -> bytes:
    return _encode({"job_id": job_id, "status": STATUS[state], "state": state.value})


def status_json(record: JobRecord, now: float) -> bytes:
    """Return the data of a status event: where the job stands, without its result."""
    job, standing = record.job, record.standing
    running = standing.state is State.RUNNING
    retrying = standing.state is State.RETRYING
    return _encode(
        {
            "job_id": job.id,
            "status": STATUS[standing.state],
            "state": standing.state.value,
            "at": stamp(now),
            "attempt": standing.attempt,
            "attempts_max": job.attempts_max,
            "started_at": stamp(standing.started_at) if running and standing.started_at else None,
            "worker": standing.worker if running else None,
            "retry_at": stamp(standing.ready_at) if retrying else None,
            "cancel_requested": standing.cancel_requested,
            "error": None if standing.error is None else error_of(standing.error),
        }
    )


def eta_json(position: int | None, eta: Eta | None, now: float) -> bytes:
    """Return the data of an eta event."""
    return b'{"position":%b,"eta":%b}' % (
        b"null" if position is None else b"%d" % position,
        eta_of(eta, now).encode(),
    )


def _moved(told: ToldEta | None, position: int | None, eta: Eta | None, now: float) -> bool:
    """Say whether the place in line or the expected end is noticeably another than told last."""
    if told is None:
        return True
    old = told.eta
    if position != told.position or (old is None) != (eta is None):
        return True
    if old is None or eta is None or (old.p50_s <= 0 and eta.p50_s <= 0):
        return False
    moved_s = abs((now + eta.p50_s) - (told.at + old.p50_s))
    return moved_s > max(ETA_MOVED_S, ETA_MOVED_SHARE * eta.p50_s)
