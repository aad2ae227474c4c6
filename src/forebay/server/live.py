"""Hub: the recent events of jobs that somebody watches or that yield parts; bounded, and never waits.

Each job has one channel with a ring of its last events, and a reader is no more than its place in that ring.
A slow reader falls behind the ring and is told how many events it missed: it costs no memory and holds nobody
up. Whatever carries reports between processes feeds the same Hub (`ports.feed.Feed`).
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import msgspec

from forebay.core.job import Lease
from forebay.server.channel import Channel, Reader, event_text

KEEP_S: Final = 120.0  # and how long after the last of them, when nobody reads
HUB_BYTES_MAX: Final = 64 * 1024 * 1024  # of all rings
CHANNELS_MAX: Final = 10_000  # jobs with recent events
EXPIRED_AT_ONCE: Final = 8  # looked at when a channel is made
READERS_MAX: Final = 5_000  # event streams open at once in this process
PROGRESS_PAUSE_S: Final = 0.25  # between two progress events of a job; the newest report counts

DONE: Final = "done"  # the id of the last event of every stream: who shows it has seen the end

_encode = msgspec.json.encode


class Hub:
    """All channels of this process; a `ports.feed.Feed`. Everything happens in one event loop."""

    def __init__(self, *, now: Callable[[], float], epoch: str = "0") -> None:
        self._now = now
        self._epoch = epoch  # tells this process's events from those before a restart
        self._made = 0
        self.channels: dict[str, Channel] = {}  # the longest untouched first
        self.size_b = 0
        self.readers = 0
        self.gaps = 0  # times that a reader was told it missed something
        self.sent = 0  # pieces sent to readers
        self.closed = False

    # Readers.

    def open(self, job_id: str) -> Reader:
        """Return a new reader of a job; `close` it."""
        channel = self.channels.get(job_id) or self._make(job_id)
        reader = Reader(channel, self._now())
        channel.readers[reader] = None
        self.readers += 1
        return reader

    def close(self, reader: Reader) -> None:
        """Forget a reader. A channel that has nothing to tell goes with its last one."""
        channel = reader.channel
        channel.readers.pop(reader, None)
        self.readers -= 1
        if channel.readers:
            return
        self._forget_final(channel)
        if not channel.ring:
            self.drop(channel)

    def end(self) -> None:
        """Let every reader go: the server stops."""
        self.closed = True
        for channel in self.channels.values():
            for reader in channel.readers:
                reader.ring()

    # Events.

    def publish(self, channel: Channel, kind: str, data: bytes) -> None:
        """Add an event to a channel and wake its readers."""
        if channel.ended or self.channels.get(channel.job_id) is not channel:
            return
        self.size_b += channel.push(kind, data)
        channel.touched_at = self._now()
        self.channels[channel.job_id] = self.channels.pop(channel.job_id)
        if self.size_b > HUB_BYTES_MAX:
            self._make_room()
        channel.wake()

    def finish(self, channel: Channel, job: bytes) -> None:
        """Say that the job has ended: readers get the finished job and go."""
        if channel.ended or self.channels.get(channel.job_id) is not channel:
            return
        channel.ended = True
        if self.size_b + len(job) <= HUB_BYTES_MAX:
            channel.final = event_text("done", job, DONE)
            self.size_b += len(channel.final)
            channel.size_b += len(channel.final)
        channel.wake()

    def drop(self, channel: Channel) -> None:
        """Forget a channel."""
        if self.channels.get(channel.job_id) is channel:
            del self.channels[channel.job_id]
            self.size_b -= channel.size_b

    # Feed.

    def parts(self, lease: Lease, number: int, texts: Sequence[bytes]) -> None:
        """Take parts of an output: each run becomes one event."""
        known = self.channels.get(lease.job.id)
        if known is None and lease.request:  # whoever reads a request has been there from its beginning
            return
        channel = known or self._make(lease.job.id)
        if lease.fence < channel.fence or channel.ended:
            return  # of a holder that lost the job
        self.begun(channel, lease.fence, lease.attempt, number)
        run: list[bytes] = []
        first = number
        for text in texts:
            if text:
                run.append(text)
                continue
            self._partial(channel, lease.attempt, first, run)
            first += len(run) + 1
            run = []
            gap = {"missed": 1, "reason": "part_too_large", "attempt": lease.attempt, "index": first - 1}
            self.publish(channel, "gap", _encode(gap))
        self._partial(channel, lease.attempt, first, run)
        channel.parts = number + len(texts)

    def begun(self, channel: Channel, fence: int, attempt: int, number: int = 0) -> None:
        """Note that an attempt yields from part `number` on: parts of an earlier one count no more."""
        if channel.parts and (fence > channel.fence or number < channel.parts):
            self.publish(channel, "restart", _encode({"attempt": attempt}))
            channel.parts = 0
        channel.fence = max(channel.fence, fence)
        if number > channel.parts:  # some came while there was no room for this job
            self.publish(channel, "gap", _encode({"missed": None, "reason": "dropped", "attempt": attempt}))
            channel.parts = number

    def progress(self, lease: Lease, text: bytes) -> None:
        """Take a report of progress; nobody is told when nobody reads."""
        channel = self.channels.get(lease.job.id)
        if channel is None or not channel.readers or lease.fence < channel.fence:
            return
        channel.progress = text
        wait_s = channel.progress_at + PROGRESS_PAUSE_S - self._now()
        if wait_s <= 0:
            self._tell_progress(channel)
        elif channel.progress_timer is None:
            loop = asyncio.get_running_loop()
            channel.progress_timer = loop.call_later(wait_s, self._tell_progress, channel)

    def _tell_progress(self, channel: Channel) -> None:
        channel.progress_timer = None
        text, channel.progress = channel.progress, None
        if text is not None:
            channel.progress_at = self._now()
            self.publish(channel, "progress", text)

    def _partial(self, channel: Channel, attempt: int, first: int, texts: list[bytes]) -> None:
        if texts:
            data = b'{"attempt":%d,"index":%d,"parts":[%b]}' % (attempt, first, b",".join(texts))
            self.publish(channel, "partial", data)

    # Room.

    def expire(self, most: int = CHANNELS_MAX) -> None:
        """Forget channels that nobody reads and nothing was said in for KEEP_S; looks at `most` of them."""
        oldest_at = self._now() - KEEP_S
        for channel in list(islice(self.channels.values(), most)):
            if not channel.readers and channel.touched_at <= oldest_at:
                self.drop(channel)

    def _make(self, job_id: str) -> Channel:
        self.expire(EXPIRED_AT_ONCE)
        if len(self.channels) >= CHANNELS_MAX:
            oldest = next((one for one in self.channels.values() if not one.readers), None)
            if oldest is not None:
                self.drop(oldest)
        self._made += 1
        channel = Channel(job_id, f"{self._epoch}.{self._made}", self._now())
        self.channels[job_id] = channel
        return channel

    def _make_room(self) -> None:
        """Forget what nobody reads, the longest untouched first; if that is not enough, what readers may
        still have wanted: they are told how much they missed."""
        for channel in list(self.channels.values()):
            if self.size_b <= HUB_BYTES_MAX:
                return
            if not channel.readers:
                self.drop(channel)
        for channel in list(self.channels.values()):
            self._forget_final(channel)
            while self.size_b > HUB_BYTES_MAX and channel.ring:
                size = len(channel.ring.popleft())
                channel.size_b -= size
                self.size_b -= size

    def _forget_final(self, channel: Channel) -> None:
        if channel.final is not None:
            size = len(channel.final)
            channel.final = None
            channel.size_b -= size
            self.size_b -= size
