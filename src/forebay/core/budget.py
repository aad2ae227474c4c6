"""Budget, Budgets: named rates of jobs that parallel producers share, and when a refused one comes back."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from forebay.core.line import Line
from forebay.core.token_bucket import TokenBucket
from forebay.core.units import rate_per_s
from forebay.errors import InvalidError, QuotaExceededError

BURST_S = 0.2  # of the rate may come at once: a budget is there to keep bursts small
BURST_MIN = 2.0  # jobs: who comes a moment late must not cost the next one its turn
IDLE_S = 60.0  # a budget that nobody used for so long is gone
BUDGETS_MAX = 1_000  # kept at once
TENANT_BUDGETS_MAX = 100  # of one tenant
BACK_MAX_S = 3600.0  # nobody is told to come back later than this
LATE_S = 1e-5  # a clock that counts from 1970 tells moments no finer than this
RATE_MIN, RATE_MAX = 1 / 86_400, 1e6  # jobs a second
NAME_LENGTH_MAX = 64
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_LENGTH_MAX - 1}}}", re.ASCII)
FIELD: Final = "Forebay-Budget"


def read_budget(text: str) -> tuple[str, float | None]:
    """Return name and jobs a second of `NAME=RATE`, like "ci=300/s"; None for a name alone.

    Raises ValueError with one sentence.
    """
    name, sign, rate = text.strip().partition("=")
    name = name.strip()
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"a name is 1 to {NAME_LENGTH_MAX} of A-Z a-z 0-9 _ . -, and begins with a letter or digit"
        )
    if not sign:
        return name, None
    found = rate_per_s(rate.strip())
    if not RATE_MIN <= found <= RATE_MAX:
        raise ValueError(f"{rate.strip()!r} is not from one a day to {RATE_MAX:,.0f} a second")
    return name, found


def budgets_of(texts: Iterable[str]) -> "Budgets":
    """Return budgets that begin with the declared ones, each `NAME=RATE`. Raises ValueError."""
    named = [read_budget(text) for text in texts]
    return Budgets({name: rate for name, rate in named if rate is not None})


class Budget:
    """One rate for all who name it. `now` is an argument everywhere, in seconds.

    Never more than BURST_S of the rate (BURST_MIN at least) beyond rate * elapsed. A refused producer is told
    when its jobs have their turn, behind those who were told before; so they come back one by one, and nobody
    has to come twice unless a newcomer was faster.
    """

    __slots__ = ("_bucket", "_line", "declared", "granted", "name", "refused", "tenant", "used_at")

    def __init__(self, *, tenant: str, name: str, rate_per_s: float, declared: bool, now: float) -> None:
        self.tenant = tenant
        self.name = name
        self.declared = declared
        self.granted = 0  # jobs
        self.refused = 0  # jobs, each time they were refused
        self.used_at = now
        self._bucket = TokenBucket(rate_per_s=rate_per_s, burst=max(BURST_MIN, rate_per_s * BURST_S))
        self._line = Line()

    @property
    def rate_per_s(self) -> float:
        """Jobs a second of all its producers together."""
        return self._bucket.rate_per_s

    @property
    def burst(self) -> float:
        """Jobs that may come at once."""
        return self._bucket.burst

    def left(self, *, now: float) -> float:
        """Return the jobs that would be let in at `now`."""
        return self._bucket.tokens_at(now)

    def line_s(self, *, now: float) -> float:
        """Return the seconds until all who were told to come back have had their turn."""
        return 0.0 if self.left(now=now) >= self.burst else self._line.wait_s(now=now)

    def has(self, jobs: int, *, now: float) -> bool:
        """Say whether so many jobs would be let in together; takes nothing."""
        return self._bucket.wait_s(jobs, now=now) == 0.0

    def take(self, jobs: int, *, now: float) -> None:
        """Take what `has` said is there."""
        self.used_at = max(self.used_at, now)
        self.granted += jobs
        self._close_line(now)
        self._bucket.take(jobs, now=now)

    def refuse(self, jobs: int, *, now: float) -> float:
        """Put refused jobs of one producer behind those that wait; return the seconds until their turn.

        Of more jobs than may come at once the first burst has its turn then. In whole milliseconds, a
        little late rather than a moment early.
        """
        need = min(float(jobs), self.burst)
        self._close_line(now)
        turn_s = self._line.join(
            step_s=need / self.rate_per_s,
            soonest_s=self._bucket.wait_s(need, now=now),
            most_s=BACK_MAX_S,
            now=now,
        )
        self.refused += jobs
        self.used_at = max(self.used_at, now)
        return math.ceil((turn_s + LATE_S) * 1000) / 1000

    def idle(self, *, now: float) -> bool:
        """Say whether it may be forgotten: unused for long, full again, and nobody waits."""
        full_s = self.burst / self.rate_per_s
        return now - max(self.used_at, self._line.ends_at) > max(IDLE_S, full_s)

    def _close_line(self, now: float) -> None:
        if self.left(now=now) >= self.burst:
            self._line.close(now=now)


class Budgets:
    """All budgets of a server, by tenant and name. Those in `declared` (name -> jobs a second) have that rate
    for every tenant; others get the rate of whoever names them first, until they are idle."""

    def __init__(self, declared: Mapping[str, float] | None = None) -> None:
        self.declared = dict(declared or {})
        self._kept: dict[tuple[str, str], Budget] = {}

    def of(self, tenant: str, name: str, rate: float | None, *, now: float) -> Budget:
        """Return the budget of that name, made now where there is none.

        Raises InvalidError for another rate than it has, or for none where it has none yet, and
        QuotaExceededError when no more budgets are kept.
        """
        budget = self._kept.get((tenant, name))
        if budget is not None and budget.idle(now=now):
            budget = None
        has = budget.rate_per_s if budget is not None else self.declared.get(name)
        if has is None:
            if rate is None:
                raise _wrong(f"there is no budget {name!r} yet: name its rate too, like {name}=300/s")
            has = rate
        elif rate is not None and not math.isclose(rate, has):
            raise _wrong(f"{name!r} has {has:g} jobs a second for all who share it, not {rate:g}")
        if budget is None:
            self._make_room(tenant, now)
            budget = Budget(tenant=tenant, name=name, rate_per_s=has, declared=name in self.declared, now=now)
            self._kept[tenant, name] = budget
        return budget

    def kept(self, tenant: str | None, *, now: float) -> list[Budget]:
        """Return the budgets in use of a tenant, None for everybody's, by tenant and name."""
        self._sweep(now)
        found = [one for one in self._kept.values() if tenant is None or one.tenant == tenant]
        return sorted(found, key=lambda one: (one.tenant, one.name))

    def _make_room(self, tenant: str, now: float) -> None:
        own = sum(1 for one in self._kept if one[0] == tenant)
        if len(self._kept) < BUDGETS_MAX and own < TENANT_BUDGETS_MAX:
            return
        self._sweep(now)
        own = sum(1 for one in self._kept if one[0] == tenant)
        if len(self._kept) >= BUDGETS_MAX or own >= TENANT_BUDGETS_MAX:
            limit = TENANT_BUDGETS_MAX if own >= TENANT_BUDGETS_MAX else BUDGETS_MAX
            raise QuotaExceededError(
                f"{limit} budgets are in use, and no more are kept", retry_after_s=IDLE_S, limit=limit
            )

    def _sweep(self, now: float) -> None:
        self._kept = {key: one for key, one in self._kept.items() if not one.idle(now=now)}


def _wrong(rule: str) -> InvalidError:
    return InvalidError(f"{FIELD}: {rule}", errors=((FIELD, rule),))
