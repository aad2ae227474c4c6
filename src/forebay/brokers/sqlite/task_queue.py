"""TaskQueue: what waits and runs of one task, in memory: lanes by priority and tenant, chains, counts."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from forebay.brokers.sqlite.due_lane import DueLane
from forebay.brokers.sqlite.heap import LazyHeap
from forebay.brokers.sqlite.journal import Journal
from forebay.brokers.sqlite.lane import Lane
from forebay.brokers.sqlite.lane_ends import LaneEnds
from forebay.brokers.sqlite.line_counts import LineCounts
from forebay.core.chains import Chains
from forebay.core.fairness import FairShare, Shares, ahead_among
from forebay.core.job import AGEING_S, Depth, Job
from forebay.core.reserve import Reserve
from forebay.core.standing import LineKey, StandingTurns
from forebay.core.turns import TENANTS_RANKED_MAX, Key, Order, order_at

LaneKey = LineKey  # priority, tenant
AnyLane = Lane | DueLane


class Spot(NamedTuple):
    """Where a queued job belongs."""

    seq: int
    tenant: str
    priority: int
    ready_at: float
    deadline_at: float | None
    ordering_key: str | None


def spot_of(job: Job, seq: int, ready_at: float) -> Spot:
    """Return where a job belongs that is ready since `ready_at`."""
    return Spot(seq, job.tenant, job.priority, ready_at, job.deadline_at, job.ordering_key)


class Common(Protocol):
    """What the queues of all tasks share."""

    journal: Journal
    ending: LazyHeap
    ends: LaneEnds
    shares: Shares
    reserves: dict[str, Reserve]
    chains: Chains[int]


class TaskQueue:
    """What waits and runs of one task: lanes and counts."""

    def __init__(self, number: int, name: str, index: Common) -> None:
        self.number = number
        self.name = name
        self._journal = index.journal
        self._ending = index.ending
        self._ends = index.ends
        self._chains = index.chains
        self._shares = index.shares
        self.reserve = index.reserves.setdefault(name, Reserve())
        self.order = Order.ARRIVAL
        self.fair = FairShare(index.shares, index.journal.undo_by)
        self.lanes: dict[LaneKey, AnyLane] = {}
        self._tenants: dict[str, int] = {}  # how many lanes each has
        self.keyed: dict[int, Spot] = {}  # queued jobs with an ordering key
        self.blocked = LazyHeap()  # those of them that wait for an earlier job of their key, by ready time
        self._turns: StandingTurns | None = None  # made when tenants share
        self._lines = LineCounts()
        self.paused = self.draining = False
        self.queued = self.scheduled = self.retrying = self.running = self.bytes = 0
        self.jobs = self.dead = 0  # rows, and dead ones among them; stored with the task

    def lane(self, priority: int, tenant: str) -> AnyLane:
        """Return the lane of a priority and a tenant, for a change of it; made when it is new."""
        self._touch((priority, tenant))
        lane = self.lanes.get((priority, tenant))
        if lane is None:
            if self.order is Order.ARRIVAL:
                lane = Lane(priority, self._journal, self._ending, self._ends)
            else:
                lane = DueLane(priority, self._journal, self._ending)
            self._put_lane((priority, tenant), lane)
            # Which kind it is goes by the order, and that may be put back.
            self._journal.undo_by(self._pop_lane, (priority, tenant))
        return lane

    def forget_lines(self) -> None:
        """Count what stands in the lanes anew: some were put back."""
        self._lines.forget()

    def _touch(self, key: LaneKey) -> None:
        self._lines.touch(key)
        if self._turns is not None:
            self._turns.touch(key)

    def _put_lane(self, key: LaneKey, lane: AnyLane) -> None:
        if key not in self.lanes:
            self._tenants[key[1]] = self._tenants.get(key[1], 0) + 1
        self.lanes[key] = lane

    def drop_lane(self, key: LaneKey) -> None:
        """Forget a lane: nobody stands in it."""
        lane = self._pop_lane(key)
        self._journal.undo_by(self._put_lane, key, lane)
        if isinstance(lane, Lane):
            self._ends.forget(lane)
        self._lines.touch(key)
        self._lines.tidy(len(self.lanes))

    def _pop_lane(self, key: LaneKey) -> AnyLane:
        self._tenants[key[1]] -= 1
        if not self._tenants[key[1]]:
            del self._tenants[key[1]]
        return self.lanes.pop(key)

    def place(self, spot: Spot) -> None:
        """Put a queued job beside its line, or let it wait for an earlier one of its ordering key."""
        if spot.ordering_key is not None:
            self._journal.undo_by(self.keyed.pop, spot.seq, None)
            self.keyed[spot.seq] = spot
            if self._chains.head((self.name, spot.tenant, spot.ordering_key)) != spot.seq:
                self._block(spot)
                return
        self.stand(spot)

    def stand(self, spot: Spot) -> None:
        """Put a job in its lane that waits for nobody."""
        lane = self.lane(spot.priority, spot.tenant)
        if isinstance(lane, Lane):
            lane.push_odd(spot.seq, spot.ready_at)
        else:
            lane.push(spot.seq, spot.ready_at, order_at(self.order, spot.ready_at, spot.deadline_at))

    def _block(self, spot: Spot) -> None:
        self.blocked.push(spot.ready_at, spot.seq)
        self._journal.undo_by(self.blocked.discard, spot.seq)

    def _unblock(self, seq: int) -> bool:
        ready_at = self.blocked.discard(seq)
        if ready_at is not None:
            self._journal.undo_by(self.blocked.push, ready_at, seq)
        return ready_at is not None

    def step_aside(self, seq: int) -> None:
        """Let a job wait for one of its ordering key that came before it; nothing when it is not queued."""
        spot = self.keyed.get(seq)
        if spot is not None and seq not in self.blocked.keys:
            self.lane(spot.priority, spot.tenant).remove(seq)
            self._block(spot)

    def let_go(self, seq: int) -> bool:
        """Put a job in line that waited for its ordering key; False when it waits for something else."""
        if not self._unblock(seq):
            return False
        self.stand(self.keyed[seq])
        return True

    def granted(self, job: Job, seq: int) -> None:
        """Take note that a job with an ordering key runs."""
        assert job.ordering_key is not None
        self._chains.run((self.name, job.tenant, job.ordering_key), seq)
        self._drop_keyed(seq)

    def _drop_keyed(self, seq: int) -> None:
        spot = self.keyed.pop(seq, None)
        if spot is not None:
            self._journal.undo_by(self.keyed.__setitem__, seq, spot)

    def take(self, limit: int, now: float) -> tuple[list[int], list[int]]:
        """Take up to `limit` jobs, most urgent first; returns them, and those that stood beside a line."""
        reserved = self.reserve.others_max is not None
        if len(self._tenants) > 1 or self.fair.on or self._shares.bounded or reserved:
            return self._take_in_turns(limit, now)
        for lane_key in self.lanes:
            self._touch(lane_key)
        taken = self._take_by_key(self.lanes.values(), limit, now)
        if taken[0]:
            self.fair.charge(next(iter(self._tenants)), None)
        return taken

    def _take_in_turns(self, limit: int, now: float) -> tuple[list[int], list[int]]:
        turns = self._turns
        if turns is None or not turns.valid:
            turns = self._turns = StandingTurns(self.fair, self.reserve, self._head)
            for lane_key in self.lanes:
                turns.touch(lane_key)
        self._journal.undo_by(setattr, turns, "valid", False)
        turns.begin(now)
        only = turns.only_tenant
        if only is not None and self.reserve.others_max is None:
            lanes = [lane for (_, tenant), lane in self.lanes.items() if tenant == only]
            out, odd = self._take_by_key(lanes, int(min(limit, self._shares.room(only))), now)
            for seq in out:
                self.fair.charge(only, seq)
                self._shares.began(only)
            for lane_key in self.lanes:
                if lane_key[1] == only:
                    self._touch(lane_key)
            return out, odd
        out, odd = list[int](), list[int]()
        while len(out) < limit and (key := turns.next()) is not None:
            odd += self.lanes[key].take(1, now, None, out)
            self._lines.touch(key)
            turns.granted(key, out[-1])
        return out, odd

    def _head(self, key: LaneKey, now: float) -> Key | None:
        """Return the key of the most urgent job of a lane; forgets a lane that nobody stands in."""
        lane = self.lanes.get(key)
        if lane is None:
            return None
        if not len(lane):
            self.drop_lane(key)
            return None
        self._journal.mark(lane)
        return lane.head(now)

    def _take_by_key(self, chosen: Iterable[AnyLane], limit: int, now: float) -> tuple[list[int], list[int]]:
        out: list[int] = []
        odd: list[int] = []
        lanes = list(chosen)
        for lane in lanes:
            self._journal.mark(lane)
        while len(out) < limit:
            heads = sorted(
                (head, place) for place, lane in enumerate(lanes) if (head := lane.head(now)) is not None
            )
            if not heads:
                break
            bound = heads[1][0] if len(heads) > 1 else None
            odd += lanes[heads[0][1]].take(limit - len(out), now, bound, out)
        return out, odd

    def remove(self, seq: int, job: Job) -> None:
        """Take one queued job out of its place."""
        self._drop_keyed(seq)
        if not self._unblock(seq):
            lane = self.lanes.get((job.priority, job.tenant))
            if lane is not None:
                self._touch((job.priority, job.tenant))
                lane.remove(seq)

    def ahead_of(self, seq: int, job: Job, ready_at: float) -> int:
        """Return about how many queued jobs of the task come before this one: core.book.Book.position."""
        key = order_at(self.order, ready_at, job.deadline_at) + job.priority * AGEING_S
        if len(self._tenants) == 1 and job.tenant in self._tenants:
            ahead = sum([lane.ahead_of(key, seq) for lane in self.lanes.values()])
        else:
            ahead = self._ahead_among_tenants(seq, job, key)
        if seq in self.blocked.keys and job.ordering_key is not None:
            ahead = max(ahead, self._chains.rank((self.name, job.tenant, job.ordering_key), seq))
        return ahead

    def _ahead_among_tenants(self, seq: int, job: Job, key: float) -> int:
        own = self.lanes.get((job.priority, job.tenant))
        rank = 0 if own is None else own.ahead_of(key, seq)
        if len(self.lanes) > TENANTS_RANKED_MAX:
            others = self.queued - (0 if own is None else len(own))
            return rank + min(others, rank * (len(self.lanes) - 1))
        weight = self._shares.weight
        rivals = [
            (len(lane), weight(tenant))
            for (priority, tenant), lane in self.lanes.items()
            if priority == job.priority and tenant != job.tenant
        ]
        ahead = sum(lane.ahead_of(key, seq) for (at, _), lane in self.lanes.items() if at != job.priority)
        return rank + ahead + ahead_among(rank, weight(job.tenant), rivals)

    def depth(self) -> Depth:
        """Return the counts as they are now."""
        lines = self._lines.read(self.lanes)
        oldest = [line.oldest_at for line in lines]
        if (first := self.blocked.top()) is not None:
            oldest.append(first[0])
        return Depth(
            queued=self.queued,
            scheduled=self.scheduled,
            retrying=self.retrying,
            running=self.running,
            bytes=self.bytes,
            oldest_at=min(oldest, default=None),
            paused=self.paused,
            dead=self.dead,
            draining=self.draining,
            lines=lines,
        )

    def saved(self) -> Callable[[], None]:
        """Return the way back to the present counts."""
        counts = dict(self.__dict__)

        def restore() -> None:
            self.__dict__.update(counts)

        return restore
