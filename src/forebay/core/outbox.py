"""Delivery, Try, DeliveryStep, OutboxBook: telling a callback URL of its job's end, as records and verbs.

A delivery is no job: it has no attempts, no priority and no dead letter, and no listing of jobs shows it.
It is stored in the commit that stores the final state, so a state that did not commit is never told.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

TRIES_KEPT = 20  # newest tries kept in the log of one delivery


class DeliveryState(str, Enum):
    """Where a delivery stands."""

    WAITING = "waiting"  # for its first or next try
    SENDING = "sending"  # claimed by a sender; waiting again when the claim lapses
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"  # tried for as long as the policy says
    DISABLED = "disabled"  # the receiver answered 410: it wants no more of this


OPEN = frozenset({DeliveryState.WAITING, DeliveryState.SENDING})


class Try(NamedTuple):
    """One try that has ended."""

    number: int  # 1 is the first, replays counted on
    at: float  # when it began
    seconds: float
    status: int | None  # of the answer; None when there was none
    detail: str = ""  # why it is no success


class Delivery(NamedTuple):
    """The one message about the end of one job, and what became of it."""

    job_id: str
    url: str
    state: DeliveryState
    tries: int  # claims so far; the number proves the newest claim, as a fence does
    since: float  # when it was first owed, or replayed
    due_at: float | None  # of the next try; of a claim: when it lapses; None when ended
    before: int = 0  # tries that were made before `since`
    ended_at: float | None = None
    log: tuple[Try, ...] = ()

    @property
    def message_id(self) -> str:
        """The `webhook-id`: the same at every try and replay, so that a receiver can tell a repetition."""
        return f"msg_{self.job_id}"


class DeliveryStep(NamedTuple):
    """A decided end of one try. Made in core/delivering only; an engine stores it while `tried.number` is
    the number of the newest claim and the delivery is being sent, and refuses it otherwise.
    """

    job_id: str
    state: DeliveryState
    tried: Try
    at: float
    due_at: float | None = None  # of the next try, when there is one


def endpoint_of(url: str) -> str:
    """Return what shares one receiver's bounds: scheme, host and port of a URL, in lower case."""
    return "/".join(url.split("?", 1)[0].split("/", 3)[:3]).lower()


class OutboxBook(Protocol):
    """The deliveries of a store. `now` is clamped as in core.book.Book."""

    def claim(
        self, *, limit: int, each_max: int, rooms: Mapping[str, int], lease_s: float, now: float
    ) -> list[Delivery]:
        """Claim up to `limit` due deliveries, earliest due first, ids break ties; of one endpoint
        (`endpoint_of`) no more than `rooms` says, and `each_max` where it says nothing.

        Due is due_at <= now: what waits for its time, and what was claimed by a sender that did not come
        back. Counts the try, sets due_at = now + lease_s and the state SENDING.
        """
        ...

    def settle(self, steps: Sequence[DeliveryStep], *, now: float) -> list[bool]:
        """Store what became of claimed tries, each only while its claim is the newest; answer in order.

        A lapsed claim may still settle while nobody claimed anew. The try goes to the end of the log, which
        keeps TRIES_KEPT. An ended delivery gets ended_at = at. False changes nothing.
        """
        ...

    def get(self, job_id: str, *, now: float) -> Delivery | None:
        """Return the delivery of a job; None when none is owed, or the job is unknown or past retention."""
        ...

    def replay(self, job_id: str, *, now: float) -> Delivery | None:
        """Make a delivery due now, counting from anew (since = now, before = tries), and return it.

        One that is being sent stays as it is. None as in `get`.
        """
        ...

    def due_at(self) -> float | None:
        """Return an instant before which `claim` finds nothing; None when nothing is open. May be early."""
        ...
