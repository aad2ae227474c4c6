"""LedgerOutbox: the reference outbox that every engine must equal; in memory, beside the Ledger's jobs."""

from collections.abc import Callable, Mapping, Sequence

from forebay.core.job import Job
from forebay.core.ledger_index import Moment, SortedKeys
from forebay.core.outbox import (
    OPEN,
    TRIES_KEPT,
    Delivery,
    DeliveryState,
    DeliveryStep,
    endpoint_of,
)


class OutTray:
    """Every delivery by its job, and the open ones in one line for each endpoint, by due_at."""

    def __init__(self) -> None:
        self.rows: dict[str, Delivery] = {}
        self.lines: dict[str, SortedKeys[Moment]] = {}
        self.fresh = False  # something new is owed; whoever tells of it sets it back

    def owe(self, job: Job, at: float) -> None:
        """Take in the delivery of a job that has just ended; nothing when it has no callback."""
        if job.callback_url is not None:
            self.fresh = True
            self.put(Delivery(job.id, job.callback_url, DeliveryState.WAITING, 0, at, at))

    def put(self, row: Delivery) -> None:
        """Store a delivery in place of what was stored of its job."""
        self.drop(row.job_id)
        self.rows[row.job_id] = row
        if row.due_at is not None:
            self.lines.setdefault(endpoint_of(row.url), SortedKeys()).add((row.due_at, row.job_id))

    def drop(self, job_id: str) -> None:
        """Forget the delivery of a job, when there is one."""
        row = self.rows.pop(job_id, None)
        if row is None or row.due_at is None:
            return
        endpoint = endpoint_of(row.url)
        line = self.lines[endpoint]
        line.remove((row.due_at, job_id))
        if line.first() is None:
            del self.lines[endpoint]

    def due(self, now: float, limit: int, each_max: int, rooms: Mapping[str, int]) -> list[str]:
        """Return the jobs whose deliveries may be claimed, earliest due first."""
        due: list[Moment] = []
        for endpoint, line in self.lines.items():
            room = rooms.get(endpoint, each_max)
            for count, moment in enumerate(line):
                if count >= room or moment[0] > now:
                    break
                due.append(moment)
        return [job_id for _, job_id in sorted(due)[: max(0, limit)]]

    def recover(self, now: float) -> None:
        """Make every claim lapse at `now`: the senders are gone with the process."""
        for row in list(self.rows.values()):
            if row.state is DeliveryState.SENDING and row.due_at is not None and row.due_at > now:
                self.put(row._replace(due_at=now))

    def audit(self) -> list[str]:
        """Return one sentence for each disagreement between rows and lines."""
        lines = sorted((endpoint, *moment) for endpoint, line in self.lines.items() for moment in line)
        rows = self.rows.values()
        counted = sorted((endpoint_of(r.url), r.due_at, r.job_id) for r in rows if r.due_at is not None)
        problems = [] if lines == counted else [f"deliveries: kept {lines}, counted {counted}"]
        odd = [row.job_id for row in rows if (row.due_at is not None) != (row.state in OPEN)]
        return problems + [f"the delivery of {job_id} is due and ended, or neither" for job_id in odd]


class LedgerOutbox:
    """A core.outbox.OutboxBook. What each verb means stands there."""

    def __init__(
        self, tray: OutTray, *, tick: Callable[[float], float], knows: Callable[[str, float], bool]
    ) -> None:
        self.tray = tray
        self._tick = tick
        self._knows = knows  # whether a job is there and not past retention

    def claim(
        self, *, limit: int, each_max: int, rooms: Mapping[str, int], lease_s: float, now: float
    ) -> list[Delivery]:
        """Claim due deliveries, earliest due first, of each endpoint no more than it has room for."""
        now = self._tick(now)
        claimed: list[Delivery] = []
        for job_id in self.tray.due(now, limit, each_max, rooms):
            row = self.tray.rows[job_id]
            row = row._replace(state=DeliveryState.SENDING, tries=row.tries + 1, due_at=now + lease_s)
            self.tray.put(row)
            claimed.append(row)
        return claimed

    def settle(self, steps: Sequence[DeliveryStep], *, now: float) -> list[bool]:
        """Store what became of tries whose claim is the newest; answer in order."""
        self._tick(now)
        return [self._settle(step) for step in steps]

    def _settle(self, step: DeliveryStep) -> bool:
        row = self.tray.rows.get(step.job_id)
        if row is None or row.state is not DeliveryState.SENDING or row.tries != step.tried.number:
            return False
        ended_at = None if step.state in OPEN else step.at
        log = (*row.log, step.tried)[-TRIES_KEPT:]
        self.tray.put(row._replace(state=step.state, due_at=step.due_at, ended_at=ended_at, log=log))
        return True

    def get(self, job_id: str, *, now: float) -> Delivery | None:
        """Return the delivery of a job, or None."""
        now = self._tick(now)
        return self.tray.rows.get(job_id) if self._knows(job_id, now) else None

    def replay(self, job_id: str, *, now: float) -> Delivery | None:
        """Make a delivery due now, counting from anew."""
        now = self._tick(now)
        row = self.get(job_id, now=now)
        if row is None or row.state is DeliveryState.SENDING:
            return row
        row = row._replace(
            state=DeliveryState.WAITING, since=now, due_at=now, before=row.tries, ended_at=None
        )
        self.tray.put(row)
        return row

    def due_at(self) -> float | None:
        """Return the earliest instant at which something is due."""
        firsts = (line.first() for line in self.tray.lines.values())
        return min((first[0] for first in firsts if first is not None), default=None)
