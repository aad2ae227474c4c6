"""Frames in the simulator and in a pipeline: the same queue says the same; and 15 cameras before a crowd."""

import pytest

from forebay.core.buffer import Backoff
from forebay.core.gate import GateTerms
from forebay.core.ladder import Step
from forebay.core.lanes import StreamShare, Ticket
from forebay.pipeline.ledger import Ledger
from forebay.pipeline.line import Line
from forebay.pipeline.stage import Stage
from forebay.sim.frames import Camera, FrameWorld, Offer, Take

FRAME_B = 640 * 480 * 3
PIXEL_S, CALL_S = 0.0037, 0.0003  # of a whole frame, and of a call whatever it holds
LADDER = (Step(0.25, scale=0.5), Step(0.5, scale=0.25))


def service(scales):
    return CALL_S + sum(PIXEL_S * scale * scale for scale in scales)


def cameras(count=15, per_s=30.0, until_s=8.0):
    return [Camera(stream=f"cam-{number}", per_s=per_s, until_s=until_s) for number in range(count)]


def crowd(until_s=20.0, **terms):
    return FrameWorld(cameras(until_s=until_s), GateTerms(**terms), service, batch_max=1)


def loss(accounts):
    streams = accounts.streams.values()
    return sum(one.lost for one in streams) / sum(one.sent for one in streams)


def p99_s(accounts):
    return max(one.latency.quantile(0.99) for one in accounts.streams.values())


def test_15_cameras_before_a_crowd_lose_two_fifths_without_degrading_and_nearly_nothing_with():
    without = crowd(items_max=300, policy="drop_newest").run()
    assert loss(without) >= 0.40
    assert p99_s(without) > 1.0, "a bound of 300 at 250/s is more than a second"
    ladder = crowd(items_max=64, policy="drop_oldest", ladder=LADDER).run()
    assert loss(ladder) <= 0.02
    assert p99_s(ladder) < 0.3


def test_every_frame_is_accounted_for():
    for policy in ("block", "drop_newest", "drop_oldest", "latest_only", "reject", Backoff()):
        accounts = crowd(4.0, items_max=16, policy=policy).run()
        assert all(one.adds_up and not one.in_flight for one in accounts.streams.values()), policy


def test_one_camera_of_ten_times_the_rate_takes_nothing_from_the_others():
    flood = Camera(stream="flood", per_s=300.0, until_s=8.0)
    quiet = cameras(5, per_s=10.0)
    accounts = FrameWorld([flood, *quiet], GateTerms(items_max=32, policy="drop_oldest"), service).run()
    assert all(accounts.streams[one.stream].lost == 0 for one in quiet)
    assert accounts.streams["flood"].drop_share > 0.2


def test_protected_cameras_keep_their_frames_and_their_size_while_others_lose():
    shares = {"cam-0": StreamShare(protected=True)}
    terms = GateTerms(items_max=32, policy="drop_oldest", ladder=(Step(0.25, scale=0.8),))
    accounts = FrameWorld(cameras(), terms, service, shares=shares).run()
    door, other = accounts.streams["cam-0"], accounts.streams["cam-1"]
    assert (door.lost, door.degraded) == (0, {})
    assert other.lost > 0 and other.degraded[1] > 0


def test_decimation_sheds_evenly_what_dropping_sheds_by_chance():
    terms = GateTerms(items_max=64, policy="drop_newest", ladder=(Step(0.25, every=2),))
    accounts = FrameWorld(cameras(), terms, service).run()
    shares = [one.drop_share for one in accounts.streams.values()]
    assert all(set(one.dropped) == {"decimated"} for one in accounts.streams.values())
    assert 0.3 < min(shares) and max(shares) < 0.5


AGREEMENTS = [
    ("drop_oldest", {"ladder": LADDER}),
    ("drop_newest", {"drop_at": 0.8}),
    ("latest_only", {}),
    ("reject", {"bytes_max": 10 * FRAME_B}),
    ("block", {}),
    (Backoff("50ms"), {"ladder": (Step(0.5, every=3),)}),
]


@pytest.mark.parametrize(("policy", "terms"), AGREEMENTS, ids=[str(policy)[:12] for policy, _ in AGREEMENTS])
def test_the_line_of_a_pipeline_says_of_every_frame_what_the_simulator_says(policy, terms):
    shares = {"cam-0": StreamShare(2.0, True)}
    world = FrameWorld(
        cameras(until_s=4.0), GateTerms(items_max=24, policy=policy, **terms), service,
        batch_max=4, replicas=2, deadline_s=0.05, shares=shares,
    )  # fmt: skip
    world.run()
    now, ledger = [0.0], Ledger()
    stage = Stage(abs)
    stage.terms, stage.batch_max = world.gate.terms, 4
    line = Line(stage, 1_000, shares, ledger, lambda: now[0])
    for told in world.trace:
        now[0] = told.at
        if isinstance(told, Offer):
            stream, seq, captured_at, deadline, size_b = told.ticket
            assert ledger.open(stream) == seq
            let = line.offer(Ticket(stream, seq, captured_at, deadline, size_b))
            shed = tuple((one.stream, one.seq, reason.value) for one, reason in let.shed)
            reason = None if let.reason is None else let.reason.value
            assert (let.entered, reason, shed) == (told.entered, told.reason, told.shed)
        else:
            assert isinstance(told, Take)
            dropped = ledger.dropped_at["abs", "late"]
            frames = line.take() if told.frames else taken_late(line)
            assert tuple((one.stream, one.seq) for one in frames) == told.frames
            assert ledger.dropped_at["abs", "late"] - dropped == len(told.late)
    assert any(isinstance(one, Take) and len(one.frames) > 1 for one in world.trace)


def taken_late(line):
    """Take where all that waits is late: `take` would wait for more."""
    with line._lock:
        return line._taken(line.stage.batch_max)
