"""StandingTurns: the turns of one task kept from lease to lease, for O(log lines) each.

They are those of core.turns.Turns, which looks at every line at each lease. Here only what has changed is
looked at: lines that their owner named, and tenants whose account has moved. What time alone changes (a job
that may not be granted any more) is found when its line comes up: a head gives way to a later one by that.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final

from forebay.core.fairness import FairShare
from forebay.core.reserve import Reserve
from forebay.core.turns import Key

LineKey = tuple[int, str]  # priority, tenant
STALE_MIN: Final = 64  # entries of a heap beyond four for each line, before it is made anew


class StandingTurns:
    """For an engine that says what changes: `touch` a line whenever its jobs do, and make `valid` False when
    lines or accounts were put back. `head` returns the key of the most urgent job of a line that may be
    granted at a time, None without one; a line that it knows nothing of has none.
    """

    def __init__(
        self, fair: FairShare, reserve: Reserve, head: Callable[[LineKey, float], Key | None]
    ) -> None:
        self.valid = True  # False: make another one
        self._fair = fair
        self._reserve = reserve
        self._head = head
        self._now = 0.0
        self._least = 0.0  # where a tenant stands that was idle, during this lease
        self._bounded = True  # some tenant may not run any number
        self._priorities: list[int] = []  # that lines were seen of
        self._touched: dict[LineKey, None] = {}
        self._heads: dict[LineKey, Key] = {}  # as last seen
        self._sure: set[LineKey] = set()  # seen in this lease
        self._of_tenant: dict[str, dict[int, None]] = {}  # priorities with a head
        self._full: dict[str, dict[int, None]] = {}  # priorities of tenants that run as many as they may
        self._raw: dict[str, float] = {}  # accounts, as the entries below have them
        # Entries that no longer hold stay until they come up.
        self._by_key: dict[int, list[tuple[Key, str]]] = {}
        self._idle: dict[int, list[tuple[Key, str]]] = {}  # tenants at `least`: all stand at one place
        self._served: dict[int, list[tuple[float, Key, str]]] = {}  # tenants beyond it
        fair.watch()

    def touch(self, key: LineKey) -> None:
        """Take note that the jobs of a line have changed."""
        self._touched[key] = None

    def begin(self, now: float) -> None:
        """Begin a lease at `now`."""
        self._now = now
        self._sure.clear()
        self._bounded = self._fair.shares.bounded
        for tenant in [one for one in self._full if self._fair.shares.room(one) > 0]:
            self._touched.update(((priority, tenant), None) for priority in self._full.pop(tenant))
        self._least = self._fair.least()
        self._follow_accounts()
        touched, self._touched = self._touched, {}
        for key in touched:
            self._look(key)
        if not self._fair.on and self._waits_more_than_one():
            self._fair.turn_on()
            self._least = self._fair.least()
            self._follow_accounts()
        self._tidy()

    @property
    def only_tenant(self) -> str | None:
        """The tenant, when jobs of one alone may be granted: the order of the keys is the order then."""
        return next(iter(self._of_tenant)) if len(self._of_tenant) == 1 else None

    def next(self) -> LineKey | None:
        """Return the line whose head is to be granted next, None when there is none."""
        open_ = self._priorities
        if self._reserve.others_max is not None:
            open_ = [priority for priority in open_ if self._reserve.room(priority) > 0]
        if len(open_) == 1:  # nearly always
            turn = self._turn(open_[0])
            return None if turn is None else (open_[0], turn[1])
        served: int | None = None
        least: Key | None = None
        turns: dict[int, tuple[float, str]] = {}
        for priority in open_:
            first = self._first(priority)
            if first is None:
                continue
            turn = self._turn(priority)
            assert turn is not None  # who has a head has a turn
            turns[priority] = turn
            if least is None or first < least:
                served, least = priority, first
        if served is None:
            return None
        for priority, turn in turns.items():  # the most urgent first
            if priority < served and turn[0] < turns[served][0]:
                served = priority
                break
        return served, turns[served][1]

    def granted(self, key: LineKey, job: Any) -> None:
        """Take note that the head of the line was granted."""
        priority, tenant = key
        self._fair.charge(tenant, job)
        self._fair.shares.began(tenant)
        if self._reserve.others_max is not None:
            self._reserve.began(priority)
        self._follow_accounts(but=key)
        self._look(key)

    # Lines

    def _look(self, key: LineKey) -> None:
        """See how a line stands now."""
        priority, tenant = key
        if self._bounded and self._fair.shares.room(tenant) <= 0:
            shut = self._full.setdefault(tenant, {})
            shut.update(self._of_tenant.get(tenant, {}))
            shut[priority] = None
            for other in shut:
                self._drop((other, tenant))
            return
        head = self._head(key, self._now)
        self._sure.add(key)
        if head is None:
            self._drop(key)
        elif self._heads.get(key) != head:
            self._heads[key] = head
            own = self._of_tenant.get(tenant)
            if own is None:
                own = self._of_tenant[tenant] = {}
            own[priority] = None
            if priority not in self._by_key:
                self._by_key[priority], self._idle[priority], self._served[priority] = [], [], []
                self._priorities = sorted(self._by_key)
            heappush(self._by_key[priority], (head, tenant))
            self._enter(key, head)

    def _drop(self, key: LineKey) -> None:
        if self._heads.pop(key, None) is None:
            return
        priority, tenant = key
        del self._of_tenant[tenant][priority]
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]
            self._raw.pop(tenant, None)

    def _holds(self, key: LineKey, head: Key) -> bool:
        """Say whether an entry is of a line as it stands now; looks at it when that is not sure."""
        if self._heads.get(key) != head:
            return False
        if key in self._sure and not (self._bounded and self._fair.shares.room(key[1]) <= 0):
            return True
        self._look(key)
        return self._heads.get(key) == head

    def _first(self, priority: int) -> Key | None:
        heap = self._by_key[priority]
        while heap:
            head, tenant = heap[0]
            if self._holds((priority, tenant), head):
                return head
            heappop(heap)
        return None

    def _waits_more_than_one(self) -> bool:
        found: set[str] = set()
        for key, head in list(self._heads.items()):
            if key[1] not in found and self._reserve.room(key[0]) > 0 and self._holds(key, head):
                found.add(key[1])
                if len(found) > 1:
                    return True
        return False

    # Accounts

    def _follow_accounts(self, *, but: LineKey | None = None) -> None:
        """Let tenants whose accounts have moved stand there; `but` this line, which is looked at next."""
        for tenant in self._fair.take_moved():
            own = self._of_tenant.get(tenant)
            if own is not None:
                self._raw[tenant] = self._fair.account_of(tenant)
                for priority in own:
                    if but != (priority, tenant):
                        self._enter((priority, tenant), self._heads[priority, tenant])

    def _enter(self, key: LineKey, head: Key) -> None:
        """Let a line have its turn where its tenant's account stands."""
        priority, tenant = key
        raw = self._raw.get(tenant)
        if raw is None:
            raw = self._raw[tenant] = self._fair.account_of(tenant)
        if raw <= self._least:
            heappush(self._idle[priority], (head, tenant))
        else:
            heappush(self._served[priority], (raw, head, tenant))

    def _turn(self, priority: int) -> tuple[float, str] | None:
        """Return where the tenant stands that has its turn in a priority, and which."""
        idle, served = self._idle[priority], self._served[priority]
        while served and served[0][0] <= self._least:
            raw, head, tenant = heappop(served)
            if self._heads.get((priority, tenant)) == head and self._raw[tenant] == raw:
                heappush(idle, (head, tenant))
        while idle:
            head, tenant = idle[0]
            if self._holds((priority, tenant), head):
                if self._raw[tenant] <= self._least:
                    return self._least, tenant
                heappush(served, (self._raw[tenant], head, tenant))
            heappop(idle)
        while served:
            raw, head, tenant = served[0]
            if self._holds((priority, tenant), head) and self._raw[tenant] == raw:
                return raw, tenant
            heappop(served)
        return None

    def _tidy(self) -> None:
        """Make a heap anew that holds too many entries of the past."""
        for priority, heap in self._by_key.items():
            if len(heap) > STALE_MIN + 4 * len(self._heads):
                heap[:] = [(head, key[1]) for key, head in self._heads.items() if key[0] == priority]
                heapify(heap)
        for priority in self._by_key:
            idle, served = self._idle[priority], self._served[priority]
            if len(idle) + len(served) > STALE_MIN + 4 * len(self._heads):
                idle.clear()
                served.clear()
                for key, head in self._heads.items():
                    if key[0] == priority:
                        self._enter(key, head)
