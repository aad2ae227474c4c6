"""A flood of jobs on the replicas that frames use, in virtual time: what the frames feel of it (G10, G16)."""

import pytest

from forebay.core.task import TaskSpec
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted

BATCHES = TaskSpec(name="M", kind="class", batch_max=16), Service(fixed_s=0.020, each_s=0.002)
SINGLES = TaskSpec(name="M", kind="class"), Service(each_s=0.010)
FLOOD_AT, ENDS = 15.0, 35.0
JOBS = 10_000


def frames_of(cameras, per_s, *, deadline_s=0.3, until=ENDS):
    """Return what so many cameras send: each at its rate, each frame up to 5 ms late."""
    chance, frames = Chance(7), []
    for _ in range(cameras):
        due = chance.random() / per_s
        while due < until:
            frames.append(Wanted(due + 0.005 * chance.random(), "M", deadline_s, frame=True))
            due += 1.0 / per_s
    return sorted(frames)


def seen(model, frames, *, replicas, jobs):
    """Return (p99, share that was not served, jobs done) from the flood on."""
    spec, service = model
    flood = [(FLOOD_AT, "M", jobs)] if jobs else []
    world = ServingWorld([spec], {"M": service}, frames, replicas=replicas, more=flood)
    answers = [one for one in world.play(until=ENDS + 1.0) if one.wanted.at >= FLOOD_AT]
    took_s = sorted(one.at - one.wanted.at for one in answers if one.good)
    lost = sum(not one.good for one in answers) / len(answers)
    return took_s[int(0.99 * len(took_s))], lost, len(world.jobs_done)


@pytest.mark.parametrize(
    ("model", "cameras", "per_s", "replicas", "jobs_least"),
    [
        (BATCHES, 5, 30.0, 1, 400),
        (BATCHES, 15, 15.0, 1, 400),
        (BATCHES, 1, 10.0, 1, 60),
        (BATCHES, 1, 10.0, 2, 4_000),
        (BATCHES, 15, 25.0, 1, 0),  # more than one replica can do
        (SINGLES, 2, 30.0, 1, 2),
        (SINGLES, 4, 10.0, 4, 1_000),
    ],
)
def test_a_flood_of_jobs_leaves_the_frames_p99_and_their_losses_as_they_were(
    model, cameras, per_s, replicas, jobs_least
):
    frames = frames_of(cameras, per_s)
    p99_s, lost, _ = seen(model, frames, replicas=replicas, jobs=0)
    p99_flood_s, lost_flood, jobs_done = seen(model, frames, replicas=replicas, jobs=JOBS)
    assert p99_flood_s <= 1.2 * p99_s
    assert abs(lost_flood - lost) <= 0.2 * lost + 0.001
    assert jobs_done >= jobs_least


def test_without_frames_the_same_flood_has_the_replicas_for_itself():
    spec, service = BATCHES
    world = ServingWorld([spec], {"M": service}, [], jobs={"M": JOBS})
    world.play(until=20.0)
    assert len(world.jobs_done) >= 0.95 * 20.0 * 16 / (0.020 + 16 * 0.002)


def test_jobs_have_all_replicas_again_two_seconds_after_the_last_frame():
    spec, service = BATCHES
    frames = frames_of(5, 30.0, until=10.0)
    world = ServingWorld([spec], {"M": service}, frames, jobs={"M": JOBS})
    world.play(until=20.0)
    late = [at for at in world.jobs_done if at >= 12.2]
    assert len(late) >= 0.95 * (20.0 - 12.2) * 16 / (0.020 + 16 * 0.002)


def test_requests_keep_their_answers_beside_frames_and_a_flood_of_jobs():
    spec, service = BATCHES
    chance = Chance(9)
    requests = [Wanted(20.0 * chance.random(), "M", 0.3) for _ in range(1_000)]
    asked = sorted([*frames_of(3, 30.0, until=20.0), *requests])
    answers = ServingWorld([spec], {"M": service}, asked, jobs={"M": JOBS}).play(until=22.0)
    plain = [one for one in answers if not one.wanted.frame]
    assert sum(one.good for one in plain) >= 0.98 * len(plain)
