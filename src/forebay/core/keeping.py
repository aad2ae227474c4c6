"""Keeping: which replicas are kept for frames while these come, and which jobs ride in their batches."""

from forebay.core.hand import Hand, TaskHand
from forebay.core.replicas import Item, Replica
from forebay.core.requests import Request
from forebay.core.smooth import RIDE_SHARE

UNKNOWN_S = 0.1  # taken for the run of a job that was never measured, where frames would wait for it
TIMES_SPARE = 2.0  # whoever has so many times what the run takes is not late for a rider's sake


def left_to_jobs(hand: Hand, now: float) -> list[Replica]:
    """Return the replicas that jobs may have while frames come: those with jobs, and idle ones, as long as
    so many stay as are kept for frames."""
    replicas = [one for one in hand.replicas.values() if one.open]
    left = len(replicas) - hand.basin.smooth.kept(len(replicas), now)
    busy = [one for one in replicas if one.runs and not one.serves_requests()]
    if len(busy) > left:
        return []
    idle = [one for one in replicas if not one.runs]
    return busy + idle[: left - len(busy)]


def lends(hand: Hand, task: TaskHand, now: float) -> bool:
    """Say whether one job of the task may have a replica that frames use, now."""
    return hand.basin.smooth.lends(_one_s(task), now)


def look_again_at(hand: Hand, now: float) -> float | None:
    """Return when jobs that wait for what frames leave look again, None when none waits so."""
    smooth = hand.basin.smooth
    if not smooth.live(now):
        return None
    runs_s = [_one_s(task) for task in hand.tasks.values() if task.held]
    return smooth.wake_at(min(runs_s), now) if runs_s else None


def note_use(hand: Hand, now: float, *, beyond: int = 0) -> None:
    """Take in how many replicas serve requests now; `beyond`: so many more are wanted."""
    serving = sum(replica.serves_requests() for replica in hand.replicas.values())
    hand.basin.smooth.used(serving + beyond, now)


def riders(hand: Hand, task: TaskHand, members: list[Request], now: float) -> list[Item]:
    """Take the jobs that ride along in a batch of requests while frames come: so few that it takes hardly
    longer, and none where it is full or one of its members has no time to spare."""
    size, fit = len(members), task.fit_of(members[0].job.priority)
    alone_s = fit.run_s(size)
    if alone_s is None:
        return []
    spare_s = min(one.deadline_at for one in members) - now
    most_s = min(alone_s * (1.0 + RIDE_SHARE), spare_s / TIMES_SPARE)
    found: list[Item] = []
    while task.held and size < task.spec.batch_max and _rides(task, members[0], task.held[0]):
        size += 1
        run_s = fit.run_s(size) or 0.0
        if run_s > most_s and (found or not _tries_one(hand, run_s - alone_s, run_s <= spare_s, now)):
            break
        found.append(task.held.popleft())
    return found


def _tries_one(hand: Hand, longer_s: float, in_time: bool, now: float) -> bool:
    """Say whether one job rides along to see how much longer it makes a batch: where all had the same size,
    nobody knows. It is taken from what is lent."""
    smooth = hand.basin.smooth
    if not in_time or not smooth.lends(longer_s / 2, now):
        return False
    smooth.lent(now)
    return True


def _rides(task: TaskHand, member: Request, item: Item) -> bool:
    """Say whether a job may be in one batch with this request: at the same level, and with no end near."""
    job = item.lease.job
    level = task.level_of(job.priority) == task.level_of(member.job.priority)
    return level and job.deadline_at is None and item.cancel_by is None


def _one_s(task: TaskHand) -> float:
    run_s = task.fit.run_s(1)
    return UNKNOWN_S if run_s is None else run_s
