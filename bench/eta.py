"""How true the told times are: p50 and p90 against the truth, over families of simulated bursts.

    python -m bench.eta [--seeds 6] [--jobs 900] [--only NAME ...] [--json eta.json]

A family is an arrival process, a law of service, a batch size, replicas and troubles; each is played with
several seeds in virtual time by the simulator, that is by the dispatcher, the store's order and the estimator
that serve real jobs. Every prediction told at submit counts, from the first that could be told, less the first
WARM_UP jobs of a run; live ones (of jobs that wait, run or wait for another try) are counted apart.
Exit code 1 when a family is out of the bar: 85 to 95 % by p90 and 40 to 60 % by p50.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))
from forebay.core.ledger import Ledger
from forebay.core.retry import RetryPolicy
from forebay.core.settle import SettlePolicy
from forebay.core.task import TaskSpec
from forebay.sim import arrivals
from forebay.sim.chance import Chance
from forebay.sim.checker import Checker
from forebay.sim.faults import Fault, FaultKind
from forebay.sim.plan import START, Plan, PlannedJob, Script
from forebay.sim.report import table
from forebay.sim.service import Service
from forebay.sim.world import World

WARM_UP = 30  # jobs of a run that are told something and not counted
P50_BAR, P90_BAR = (0.40, 0.60), (0.85, 0.95)
RETRY = SettlePolicy(retry=RetryPolicy(base_s=1.0, cap_s=8.0))


class Unhurried(Checker):
    """Leaves out the look that costs a walk over every job."""

    def queue_served(self, *args, **kwargs):
        pass


@dataclass(frozen=True, kw_only=True)
class Family:
    """One kind of traffic on one kind of model."""

    times: Callable[[Chance, int], list[float]]  # (chance, jobs) -> instants
    service: Service = Service(each_s=0.5, spread=0.3)
    batch_max: int = 1
    concurrency: int = 1
    replicas: int = 1
    load_s: float = 0.5
    jobs: Callable[[Chance, list[float]], list[PlannedJob]] | None = None
    faults: Callable[[Chance, list[float]], list[Fault]] | None = None
    regimes: tuple[tuple[float, float], ...] = ()  # (share of the run, factor)
    tasks: int = 1


def poisson(rate):
    return lambda chance, jobs: arrivals.poisson(chance, rate, start=START + 1, until=START + 1 + jobs / rate)


def bursts(every_s, size, width_s=1.0):
    return lambda chance, jobs: arrivals.bursts(
        chance,
        start=START + 1,
        until=START + 1 + every_s * jobs / size,
        every_s=every_s,
        size=size,
        width_s=width_s,
    )


def day(low, high, day_s):
    mean = (low + high) / 2
    return lambda chance, jobs: arrivals.day_curve(
        chance, low_per_s=low, high_per_s=high, day_s=day_s, start=START + 1, until=START + 1 + jobs / mean
    )


def plain(times, task="t", **fields):
    return [PlannedJob(number=n, at=at, task=task, **fields) for n, at in enumerate(times)]


def mixed_priorities(chance, times):
    return [job._replace(priority=chance.pick((2, 5, 5, 5, 8))) for job in plain(times)]


def alike_in_bursts(chance, times):
    """Jobs that come together are alike: a gap of a second begins another kind."""
    made, weight, last = [], 1.0, 0.0
    for job in plain(times):
        if job.at - last > 1.0:
            weight = chance.pick((0.5, 0.8, 1.0, 1.3, 2.0))
        last = job.at
        made.append(job._replace(weight=weight))
    return made


def by_size(chance, times):
    """Large inputs take longer, and their size says so."""
    sizes = {200: 0.5, 3_000: 1.0, 50_000: 3.0}
    made = []
    for job in plain(times):
        size = chance.pick((200, 200, 3_000, 3_000, 50_000))
        made.append(job._replace(size_b=size, weight=sizes[size]))
    return made


def often_failing(chance, times):
    return [job._replace(script=Script.FLAKY if chance.hit(0.15) else Script.GOOD) for job in plain(times)]


def two_tasks(chance, times):
    return [job._replace(task=chance.pick(("t", "t", "u"))) for job in plain(times)]


def crashes(every_s):
    def made(chance, times):
        at = arrivals.poisson(chance, 1 / every_s, start=times[0], until=times[-1])
        return [Fault(FaultKind.CHILD_CRASH, one, 0.0, chance.whole(0, 7)) for one in at]

    return made


FAMILIES = {
    "poisson, 1 replica": Family(times=poisson(1.4)),
    "poisson, 4 replicas, busy": Family(times=poisson(7.4), replicas=4),
    "poisson, light": Family(times=poisson(0.6)),
    "on/off, 1 replica": Family(times=bursts(20, 25)),
    "on/off, 8 replicas": Family(times=bursts(10, 120), replicas=8),
    "on/off, batches of 8": Family(
        times=bursts(10, 80), batch_max=8, replicas=2, service=Service(fixed_s=0.4, each_s=0.1, spread=0.2)
    ),
    "poisson, batches of 16": Family(
        times=poisson(20), batch_max=16, service=Service(fixed_s=0.2, each_s=0.03, spread=0.2)
    ),
    "day curve, 2 replicas": Family(times=day(0.5, 5.5, 150), replicas=2),
    "day curve, batches of 4": Family(
        times=day(1, 11, 120), batch_max=4, replicas=2, service=Service(fixed_s=0.3, each_s=0.2, spread=0.3)
    ),
    "heavy tail, poisson": Family(times=poisson(2.6), replicas=2, service=Service(each_s=0.5, tail=2.5)),
    "heavy tail, on/off": Family(times=bursts(20, 50), replicas=2, service=Service(each_s=0.5, spread=1.0)),
    "priorities": Family(times=bursts(16, 60), replicas=2, jobs=mixed_priorities),
    "two times slower": Family(times=poisson(0.9), regimes=((0.5, 2.0),)),
    "slower and faster again": Family(
        times=bursts(15, 40), replicas=2, regimes=((0.33, 2.0), (0.66, 1.0)),
    ),
    "replicas lost": Family(times=poisson(5), replicas=4, load_s=8.0, faults=crashes(15)),
    "alike in bursts": Family(times=bursts(25, 20), jobs=alike_in_bursts),
    "input sizes": Family(times=poisson(2.4), replicas=2, jobs=by_size, service=Service(each_s=0.5, spread=0.15)),
    "one in seven fails": Family(times=poisson(2.2), replicas=2, jobs=often_failing),
    "two functions, one pool": Family(times=bursts(16, 50), replicas=2, jobs=two_tasks, tasks=2),
    "async calls": Family(times=poisson(9), concurrency=4, replicas=2, service=Service(each_s=0.7, spread=0.4)),
}  # fmt: skip


def plan_of(family, seed, jobs):
    chance = Chance(seed).fork(7)
    times = family.times(chance, jobs)
    span = times[-1] - times[0]
    regimes = tuple((times[0] + share * span, factor) for share, factor in family.regimes)
    service = Service(
        fixed_s=family.service.fixed_s, each_s=family.service.each_s, spread=family.service.spread,
        tail=family.service.tail, regimes=regimes,
    )  # fmt: skip
    names = ("t", "u")[: family.tasks]
    spec = {"batch_max": family.batch_max, "batch_wait_s": 0.02 if family.batch_max > 1 else 0.0}
    specs = tuple(TaskSpec(name=name, concurrency=family.concurrency, settle=RETRY, **spec) for name in names)
    planned = family.jobs(chance, times) if family.jobs else plain(times)
    return Plan(
        seed=seed, lanes=(specs,), services={name: service for name in names}, jobs=tuple(planned),
        faults=tuple(family.faults(chance, times)) if family.faults else (), replicas=family.replicas,
        lease_s=30.0, latency_s=0.001, load_s=family.load_s, chaos_s=times[-1] - START, heal_s=6_000.0,
    )  # fmt: skip


def play(family, seed, jobs, live_every_s=3.0):
    """Return what was foretold at submit after the warm-up, and live."""
    world = World(
        plan_of(family, seed, jobs), Ledger(), checker=Unhurried(), check_all_every=10**9,
        live_every_s=live_every_s,
    )  # fmt: skip
    world.run()
    scored = sorted(world.forecasts.scored, key=lambda one: one.at)
    submits = [one for one in scored if not one.live][WARM_UP:]
    since = submits[0].at if submits else 0.0
    return submits, [one for one in scored if one.live and one.at >= since], world.forecasts.silent


def row_of(name, submits, live, silent=0):
    count = max(1, len(submits))
    by50 = sum(one.true_s <= one.eta.p50_s for one in submits) / count
    by90 = sum(one.true_s <= one.eta.p90_s for one in submits) / count
    wide = sum(one.eta.p90_s - one.eta.p50_s for one in submits) / max(
        1e-9, sum(one.true_s for one in submits)
    )
    off = sum(abs(one.eta.p50_s - one.true_s) for one in submits) / max(
        1e-9, sum(one.true_s for one in submits)
    )
    count = max(1, len(live))
    return {
        "family": name, "jobs": len(submits), "silent": silent,
        "true_s": round(sum(one.true_s for one in submits) / max(1, len(submits)), 2),
        "by_p50": round(by50, 3), "by_p90": round(by90, 3), "width": round(wide, 3), "error": round(off, 3),
        "live": len(live),
        "live_p50": round(sum(one.true_s <= one.eta.p50_s for one in live) / count, 3),
        "live_p90": round(sum(one.true_s <= one.eta.p90_s for one in live) / count, 3),
        "ok": P50_BAR[0] <= by50 <= P50_BAR[1] and P90_BAR[0] <= by90 <= P90_BAR[1],
    }  # fmt: skip


def measure(name, seeds, jobs):
    submits, live, silent = [], [], 0
    for seed in seeds:
        more, more_live, quiet = play(FAMILIES[name], seed, jobs)
        submits += more
        live += more_live
        silent += quiet
    return row_of(name, submits, live, silent)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=900, help="of one run")
    parser.add_argument("--only", nargs="*", help="families whose name has one of these")
    parser.add_argument("--json", help="write the figures to this file too")
    given = parser.parse_args()
    names = [one for one in FAMILIES if not given.only or any(part in one for part in given.only)]
    began = time.process_time()
    rows = [measure(name, range(given.first, given.first + given.seeds), given.jobs) for name in names]
    print(table(rows))
    bad = [row["family"] for row in rows if not row["ok"]]
    print(
        f"{time.process_time() - began:.0f} s of processor;",
        "all within the bar" if not bad else f"out of the bar: {bad}",
    )
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
