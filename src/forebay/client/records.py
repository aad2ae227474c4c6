"""ETA, Verdict, Mapped, JobFacts: what the client hands to its user."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from forebay.client.wire import View, object_of
from forebay.errors import ForebayError

FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", "EXPIRED"})


class ETA(NamedTuple):
    """When the job is expected to end, in seconds from the answer, and its place in line from 1."""

    p50_s: float | None
    p90_s: float | None
    position: int | None


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A stored blob. In a payload it stands for the bytes."""

    id: str
    size: int
    sha256: str
    media_type: str

    def reference(self) -> dict[str, str]:
        """Return how JSON names it."""
        return {"$blob": self.id}


class Verdict(NamedTuple):
    """What became of one of many submissions. Exactly one of `job_id` and `error` is set."""

    line: int  # from 1, in the order of the items
    job_id: str | None
    error: ForebayError | None


class Announcement(NamedTuple):
    """What the server expects of a burst that was announced to it. `eta` is of the last job, in seconds;
    `room` None is not told. `rate_per_s` None: as fast as you like where it `fits`, else nothing is known."""

    fits: bool
    room: int | None
    rate_per_s: float | None
    takes_s: float | None
    eta: ETA | None
    reserved: int
    message: str


class Mapped(NamedTuple):
    """One item of a map that has ended: its place in the items, from 0, and its result or its error."""

    place: int
    job_id: str | None
    result: Any
    error: ForebayError | None
    view: View | None = None  # the finished job as the server told it


def eta_of(view: View) -> ETA | None:
    """Return the estimate in a job, None when the server has measured nothing yet or the job has ended."""
    eta = object_of(view.get("eta"))
    if eta is None:
        return None
    return ETA(_number(eta.get("p50_s")), _number(eta.get("p90_s")), position_of(view))


def announcement_of(view: View) -> Announcement:
    """Return the answer to an announcement."""
    room = view.get("room")
    return Announcement(
        fits=view.get("fits") is True,
        room=room if isinstance(room, int) else None,
        rate_per_s=_number(view.get("rate_per_s")),
        takes_s=_number(view.get("takes_s")),
        eta=eta_of(view),
        reserved=int(_number(view.get("reserved")) or 0),
        message=str(view.get("message", "")),
    )


def position_of(view: View) -> int | None:
    """Return the place in line, 1 is next; None when running or ended."""
    position = view.get("position")
    return position if isinstance(position, int) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class JobFacts:
    """What both job handles can tell without asking: the job as of the last answer in `view`."""

    __slots__ = ("view",)
    view: View

    def __init__(self, view: View) -> None:
        self.view = view

    @property
    def job_id(self) -> str:
        """The job's id."""
        return str(self.view.get("job_id", ""))

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.view.get("task", ""))

    @property
    def status(self) -> str:
        """PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED or EXPIRED, as of the last answer."""
        return str(self.view.get("status", "PENDING"))

    @property
    def state(self) -> str:
        """The finer state, as of the last answer."""
        return str(self.view.get("state", ""))

    @property
    def eta(self) -> ETA | None:
        """The estimate of the last answer, None when there was none."""
        return eta_of(self.view)

    @property
    def degraded(self) -> str | None:
        """Why the result is below what was asked for, such as "fallback"; None when it is not, or there is
        none yet."""
        level = self.view.get("degraded")
        return level if isinstance(level, str) else None

    @property
    def done(self) -> bool:
        """Whether the job had ended at the last answer."""
        return self.status in FINAL

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.job_id!r}, {self.task!r}, {self.status})"
