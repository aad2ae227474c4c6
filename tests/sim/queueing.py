"""One task in the simulated world, without faults: what is asked of it is what queueing theory answers."""

from forebay.core.ledger import Ledger
from forebay.core.task import TaskSpec
from forebay.sim import arrivals
from forebay.sim.chance import Chance
from forebay.sim.checker import Checker
from forebay.sim.plan import START, Plan, PlannedJob
from forebay.sim.service import Service
from forebay.sim.world import World


class Unhurried(Checker):
    """Leaves out the one look that costs a walk over every job."""

    def queue_served(self, *args, **kwargs):
        pass


def a_plan(times, *, fixed_s=0.0, each_s=0.05, spread=0.0, replicas=1, seed=1, **fields):
    return Plan(
        seed=seed,
        lanes=((TaskSpec(name="t", **fields),),),
        services={"t": Service(fixed_s=fixed_s, each_s=each_s, spread=spread)},
        jobs=tuple(PlannedJob(number=i, at=at, task="t") for i, at in enumerate(times)),
        replicas=replicas,
        lease_s=30.0,
        latency_s=0.0,
        load_s=0.0,
        chaos_s=times[-1] - START,
    )


def run(plan, every_s=0.0):
    """Play it; return times in system and, when asked, the numbers in system seen every `every_s`."""
    book, seen = Ledger(), []
    world = World(plan, book, checker=Unhurried(), check_all_every=10**9)

    def look():
        seen.append(book.depth("t", now=world.engine.now).open)
        if world.engine.now < plan.jobs[-1].at:
            world.engine.after(every_s, look)

    if every_s:
        world.engine.at(START, look)
    world.run()
    sojourns = [s.record.standing.finished_at - s.record.job.created_at for s in world.checker.jobs.values()]
    return sojourns, seen


def mean(values):
    return sum(values) / len(values)


def poisson(rate, seconds, seed=1):
    return arrivals.poisson(Chance(seed), rate, start=START + 1.0, until=START + 1.0 + seconds)


def waits(plan):
    """Play it; return how long each job stood in line, sorted."""
    world = World(plan, Ledger(), checker=Unhurried(), check_all_every=10**9)
    world.run()
    standings = [(s.record.job, s.record.standing) for s in world.checker.jobs.values()]
    return sorted(standing.started_at - job.created_at for job, standing in standings)
