"""The header Forebay-Budget: which budget a submission is counted by; GET /v1/budgets: those in use."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

import msgspec
from fastapi import Request, Response

from forebay.core.admission import Reason, Rejected
from forebay.core.budget import FIELD, Budget, read_budget
from forebay.core.job import Job
from forebay.errors import InvalidError, QuotaExceededError
from forebay.server.asking import Heads
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.routing import Route, json_response

BUDGET_HEADER: Final = FIELD.lower().encode()
Refused = tuple[int, Job, Rejected]

# Of this request, as who asks is: see caller.py.
_BUDGET: ContextVar[Budget | None] = ContextVar("budget", default=None)
budget_named = _BUDGET.get


def name_budget(front: Front, heads: Heads) -> None:
    """Count the submissions of this request by the budget that its head names.

    Raises InvalidError, and QuotaExceededError when no more budgets are kept.
    """
    header = heads.get(BUDGET_HEADER)
    if header is None:
        return
    try:
        name, rate = read_budget(header.decode("latin-1"))
    except ValueError as error:
        raise InvalidError(f"{FIELD}: {error}", errors=((FIELD, str(error)),)) from None
    try:
        _BUDGET.set(front.budgets.of(caller().tenant, name, rate, now=front.clock.now()))
    except QuotaExceededError:
        front.meters.bound_reached("budgets")
        raise


def forget_budget() -> None:
    """Let the request that begins be counted by no budget. Costs nothing when that is so already."""
    if _BUDGET.get() is not None:
        _BUDGET.set(None)


def over_budget(jobs: int, *, now: float) -> Rejected | None:
    """Return the refusal of jobs that the budget of this request does not let in together, still without a
    time: see `told_to_come`. None when it lets them in, or there is none."""
    budget = budget_named()
    if budget is None or budget.has(jobs, now=now):
        return None
    return Rejected(Reason.OVER_BUDGET, None, budget.rate_per_s)


def told_to_come(rejected: Rejected, *, now: float, jobs: int = 1) -> Rejected:
    """Return the refusal with the time at which so many jobs of this producer have their turn."""
    budget = budget_named()
    if rejected.reason is not Reason.OVER_BUDGET or rejected.retry_after_s is not None or budget is None:
        return rejected
    return rejected._replace(retry_after_s=budget.refuse(jobs, now=now))


def all_told_to_come(refused: Sequence[Refused], *, now: float) -> list[Refused]:
    """Return the refusals of one group: its producer comes back once for all of them."""
    over = [one for one in refused if one[2].reason is Reason.OVER_BUDGET]
    if not over:
        return list(refused)
    told = told_to_come(over[0][2], now=now, jobs=len(over))
    return [(at, job, told if why.reason is Reason.OVER_BUDGET else why) for at, job, why in refused]


class BudgetView(msgspec.Struct):
    """One budget in use. `left` may come now; who is refused now has its turn after `line_s`."""

    name: str
    tenant: str
    rate_per_s: float
    burst: float
    left: float
    line_s: float
    granted: int
    refused: int
    declared: bool


class BudgetList(msgspec.Struct):
    """The budgets in use, by tenant and name."""

    items: list[BudgetView]
    next_cursor: str | None = None


VIEWS = (BudgetView, BudgetList)


class BudgetDesk:
    """Shows budgets."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        text = "List the budgets in use"
        return (Route("GET", "/v1/budgets", self.budgets, text, "queues", "BudgetList"),)

    async def budgets(self, request: Request) -> Response:
        """Answer the budgets in use that the caller may see."""
        now = self._front.clock.now()
        return json_response(
            BudgetList([_view(one, now) for one in self._front.budgets.kept(caller().own, now=now)])
        )


def _view(budget: Budget, now: float) -> BudgetView:
    return BudgetView(
        name=budget.name,
        tenant=budget.tenant,
        rate_per_s=budget.rate_per_s,
        burst=round(budget.burst, 3),
        left=round(budget.left(now=now), 3),
        line_s=round(budget.line_s(now=now), 3),
        granted=budget.granted,
        refused=budget.refused,
        declared=budget.declared,
    )
