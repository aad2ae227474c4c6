"""Plan: one history before it happens. Jobs, tasks, nodes and faults as data, all from one seed."""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from forebay.core.breaker import BreakerPolicy
from forebay.core.retry import RetryPolicy
from forebay.core.settle import SettlePolicy
from forebay.core.task import TaskSpec
from forebay.sim.chance import Chance
from forebay.sim.faults import Fault, draw_faults
from forebay.sim.service import Service

START = 1_000.0  # the instant every history begins at
CHAOS_S = 12.0  # faults and arrivals happen within this; then everything heals


class Script(str, Enum):
    """What a job's handler does."""

    GOOD = "good"
    BAD = "bad"  # raises, every time
    FLAKY = "flaky"  # raises, but for the third try
    PERMANENT = "permanent"  # raises what is not worth another try
    LATER = "later"  # asks to be tried again after a while, then is good
    POISON = "poison"  # kills its process, every time
    HANG = "hang"  # never ends and does not notice a cancel
    HELD = "held"  # the same, and its process answers nothing (a held GIL)
    KIND = "kind"  # long, and ends when it is cancelled


SHARED, BREAKERS = 7_000_000_000, 11_000_000_000  # apart from the seeds of worlds

NASTY = (*Script, Script.POISON, Script.POISON, Script.HANG)  # deaths show more than the rest


class PlannedJob(NamedTuple):
    """One submission a client will make."""

    number: int
    at: float
    task: str
    script: Script = Script.GOOD
    weight: float = 1.0  # of its service time
    key: str | None = None  # idempotency key
    body: int = 0  # submissions of one key with another body are refused
    priority: int = 5
    attempts_max: int = 3
    ttl_s: float | None = None
    deadline_s: float | None = None
    run_in_s: float = 0.0
    cancel_after_s: float | None = None
    tenant: str = ""
    ordering_key: str | None = None
    size_b: int = 2  # of its payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a World needs. `lanes` are sets of tasks that share replicas."""

    seed: int
    lanes: tuple[tuple[TaskSpec, ...], ...]
    services: dict[str, Service]
    jobs: tuple[PlannedJob, ...]
    faults: tuple[Fault, ...] = ()
    nodes: int = 1
    replicas: int = 1
    lease_s: float = 3.0
    chaos_s: float = CHAOS_S
    heal_s: float = 600.0  # everything must have ended this long after the last fault
    latency_s: float = 0.001  # of the store, on average; 0 is at once
    load_s: float = 0.05
    levels: dict[str, tuple[Service, ...]] = field(default_factory=dict[str, tuple[Service, ...]])  # variants
    queue_max: int = 100_000  # what the queue of a task is full at
    extra: dict[str, float] = field(default_factory=dict[str, float])

    def without(self, *, jobs: tuple[int, ...] = (), faults: tuple[int, ...] = ()) -> "Plan":
        """Return the plan without the jobs and faults at these places; the rest happens as before."""
        return replace(
            self,
            jobs=tuple(job for i, job in enumerate(self.jobs) if i not in jobs),
            faults=tuple(fault for i, fault in enumerate(self.faults) if i not in faults),
        )


def draw_plan(seed: int, *, jobs: int | None = None, faulty: bool = True) -> Plan:
    """Draw a small, nasty world. `jobs` None draws their number too."""
    chance = Chance(seed)
    lease_s = chance.pick((1.5, 3.0, 6.0))
    lanes = _draw_lanes(chance)
    names = [spec.name for lane in lanes for spec in lane]
    services = {
        name: Service(
            fixed_s=chance.pick((0.0, 0.02, 0.2)),
            each_s=chance.pick((0.0005, 0.01, 0.1, 1.0)),
            spread=chance.pick((0.0, 0.3)),
        )
        for name in names
    }
    count = jobs or (40 if chance.hit(0.08) else chance.whole(1, 14))
    if chance.hit(0.3):  # everything at one task: what crowds shows
        names = [chance.pick(names)]
    drawn = _share_out(Chance(seed + SHARED), _draw_jobs(chance, count, names))
    faults = draw_faults(chance, start=START, until=START + CHAOS_S, lease_s=lease_s) if faulty else []
    return Plan(
        seed=seed,
        lanes=_with_breakers(Chance(seed + BREAKERS), lanes),
        services=services,
        jobs=tuple(drawn),
        faults=tuple(faults),
        nodes=chance.pick((1, 1, 2)),
        replicas=chance.whole(1, 3),
        lease_s=lease_s,
        latency_s=chance.pick((0.0005, 0.005, 0.05)),
        load_s=chance.pick((0.05, 0.5)),
    )


def _share_out(chance: Chance, jobs: list[PlannedJob]) -> list[PlannedJob]:
    """Let the jobs of some worlds belong to several tenants and ordering keys. Chance of its own, so that
    all else happens as it did without."""
    tenants = ("", "", "x") if chance.hit(0.4) else ("",)
    keyed = chance.pick((0.0, 0.0, 0.4, 0.9))
    return [
        job._replace(
            tenant=chance.pick(tenants),
            ordering_key=chance.pick(("cam", "cam", "mic")) if chance.hit(keyed) else None,
        )
        for job in jobs
    ]


def _with_breakers(
    chance: Chance, lanes: tuple[tuple[TaskSpec, ...], ...]
) -> tuple[tuple[TaskSpec, ...], ...]:
    """Give some tasks a breaker. Chance of its own, so that all else happens as it did without."""

    def guarded(spec: TaskSpec) -> TaskSpec:
        if not chance.hit(0.3):
            return spec
        policy = BreakerPolicy(
            failures=chance.pick((1, 2, 4)),
            rate=None,
            window_s=chance.pick((1.0, 10.0)),
            slow_s=chance.pick((None, None, 0.5)),
            open_s=chance.pick((0.3, 2.0)),
        )
        return replace(spec, breaker=policy)

    return tuple(tuple(guarded(spec) for spec in lane) for lane in lanes)


def _draw_lanes(chance: Chance) -> tuple[tuple[TaskSpec, ...], ...]:
    policy = SettlePolicy(
        retry=RetryPolicy(base_s=chance.pick((0.1, 0.5)), cap_s=1.0),
        deaths_max=2,
        releases_max=chance.pick((20, 100)),
    )
    timeout_s = chance.pick((1.0, 4.0))
    model = TaskSpec(
        name="model",
        kind="class",
        batch_max=chance.pick((1, 3, 8)),
        batch_wait_s=chance.pick((0.0, 0.02, 0.5)),
        timeout_s=timeout_s,
        settle=policy,
        recycle_after=chance.pick((None, None, 5)),
    )
    resize = TaskSpec(name="resize", timeout_s=timeout_s, settle=policy)
    calls = TaskSpec(name="calls", concurrency=4, timeout_s=timeout_s, settle=policy)
    choice = chance.whole(0, 3)
    if choice == 0:
        return ((model,),)
    if choice == 1:
        return ((resize,),)
    if choice == 2:
        return ((resize, calls),)
    return ((model,), (resize, calls))


def _draw_jobs(chance: Chance, count: int, names: list[str]) -> list[PlannedJob]:
    jobs: list[PlannedJob] = []
    nasty = chance.pick((0.0, 0.2, 0.5))
    crowded = chance.hit(0.5)
    for number in range(count):
        at = START + chance.between(0.0, 1.0 if crowded else CHAOS_S * 0.8)
        key = f"k{chance.whole(0, count * 2)}" if chance.hit(0.6) else None
        jobs.append(
            PlannedJob(
                number=number,
                at=at,
                task=chance.pick(names),
                script=chance.pick(NASTY) if chance.hit(nasty) else Script.GOOD,
                weight=chance.pick((1.0, 1.0, 0.2, 5.0)),
                key=key,
                body=chance.whole(0, 1) if chance.hit(0.2) else 0,
                priority=chance.pick((5, 5, 2, 8)),
                attempts_max=chance.pick((1, 3, 3, 6)),
                ttl_s=chance.pick((0.5, 4.0)) if chance.hit(0.15) else None,
                deadline_s=chance.pick((0.3, 3.0)) if chance.hit(0.15) else None,
                run_in_s=chance.between(0.1, 5.0) if chance.hit(0.15) else 0.0,
                cancel_after_s=chance.between(0.01, 5.0) if chance.hit(0.15) else None,
            )
        )
    return sorted(jobs, key=lambda job: job.at)
