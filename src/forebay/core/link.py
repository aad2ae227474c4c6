"""Link: the life of a connection to a source: when to try again, when to give up, and what was counted."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from forebay.core.buffer import Backoff


class LinkState(str, Enum):
    """Where a connection stands."""

    CONNECTING = "connecting"
    STREAMING = "streaming"
    WAITING = "waiting"  # for the next try
    ENDED = "ended"  # the source said it is over, or we closed it
    FAILED = "failed"  # given up


class Loss(str, Enum):
    """How a connection was lost."""

    REFUSED = "refused"  # it gave no frame at all
    BROKEN = "broken"  # an error between frames
    STALLED = "stalled"  # open, and silent for too long
    ENDED = "ended"  # the other side said that was all, where there is always more


class Wait(NamedTuple):
    """Try again after so many seconds."""

    wait_s: float


class GiveUp(NamedTuple):
    """Do not try again: nothing has come for `silent_s`."""

    silent_s: float


@dataclass(slots=True)
class Link:
    """Decides for one source. A link that has streamed for `steady_s` is a good one: after it the backoff
    begins anew. One that gives a frame and breaks, again and again, waits longer each time.

    `give_up_s`: without a frame for so long it is given up; None is never.
    """

    backoff: Backoff
    steady_s: float
    give_up_s: float | None
    state: LinkState = LinkState.CONNECTING
    tries: int = 0  # since the last good link
    opened: int = 0
    reconnects: int = 0
    losses: dict[Loss, int] = field(default_factory=lambda: dict.fromkeys(Loss, 0))
    waited_s: float = 0.0
    _streaming_since: float | None = None
    _heard_at: float | None = None

    def connect(self, now: float) -> None:
        """A try begins."""
        self.state = LinkState.CONNECTING
        self._streaming_since = None
        if self._heard_at is None:
            self._heard_at = now  # the patience counts from the first try

    def frame(self, now: float) -> None:
        """A frame came."""
        if self._streaming_since is None:
            self._streaming_since = now
            self.state = LinkState.STREAMING
            self.reconnects += self.opened > 0
            self.opened += 1
        elif self.tries and now - self._streaming_since >= self.steady_s:
            self.tries = 0
        self._heard_at = now

    def lost(self, now: float, loss: Loss, drawn: float) -> Wait | GiveUp:
        """The connection is gone. `drawn`, in [0, 1), breaks up a herd: half of the wait is certain."""
        if self._streaming_since is None:
            loss = loss if loss is Loss.STALLED else Loss.REFUSED
        elif now - self._streaming_since >= self.steady_s:
            self.tries = 0
        self.losses[loss] += 1
        silent_s = now - (now if self._heard_at is None else self._heard_at)
        if self.give_up_s is not None and silent_s >= self.give_up_s:
            self.state = LinkState.FAILED
            return GiveUp(silent_s)
        self.tries += 1
        full_s = self.backoff.wait_s(self.tries)
        wait_s = full_s / 2 + full_s / 2 * drawn
        self.state = LinkState.WAITING
        self.waited_s += wait_s
        return Wait(wait_s)

    def end(self) -> None:
        """The source is over, and that is no fault."""
        if self.state is not LinkState.FAILED:
            self.state = LinkState.ENDED
