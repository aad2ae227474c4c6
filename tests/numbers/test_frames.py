"""Numbers of cameras and stages of frames that people have, each under its own name and in virtual time."""

import pytest

import forebay
from forebay.core.accounts import Accounts
from forebay.core.breaker import CircuitBreaker, Ending, Permit
from forebay.core.buffer import Reason
from forebay.core.gate import Gate, GateTerms
from forebay.core.ladder import Ladder, Step, thresholds
from forebay.core.lanes import Ticket
from forebay.sim.frames import Camera, FrameWorld
from tests.sim.test_frames import LADDER, loss, p99_s, service


def test_m12_frames_get_smaller_from_950_of_1000_on():
    marks = thresholds(1_000, drop=1_000, degrade=950)
    ladder = Ladder((Step(marks.degrade_at, scale=0.5),))
    assert [ladder.see(waiting / 1_000) for waiting in (0, 900, 949, 950, 1_000)] == [0, 0, 0, 1, 1]
    gate = Gate(GateTerms(items_max=1_000, policy="drop_newest", ladder=ladder.steps))
    tickets = [Ticket("cam", number, 0.0) for number in range(1_000)]
    assert all(gate.offer(ticket, now=0.0).entered for ticket in tickets)
    assert [ticket.seq for ticket in tickets if ticket.degraded] == list(range(950, 1_000))


def test_m17_two_of_3000_frames_dropped_are_below_a_tenth_of_a_percent_and_four_are_not():
    accounts = Accounts()
    for number in range(3_000):
        ticket = Ticket("cam", accounts.open("cam"), 0.0)
        if number < 2:
            accounts.drop(ticket, Reason.OLDEST)
        else:
            accounts.serve(ticket, now=0.01)
    cam = accounts.streams["cam"]
    assert cam.drop_share == pytest.approx(2 / 3_000) and not cam.alert
    for _ in range(2):
        accounts.drop(Ticket("cam", accounts.open("cam"), 0.0), Reason.OLDEST)
    assert cam.alert


def crowd(**terms):
    """15 cameras of 30 a second before a model of 250 whole frames a second."""
    cameras = [Camera(stream=f"cam-{number}", per_s=30.0, until_s=20.0) for number in range(15)]
    return FrameWorld(cameras, GateTerms(**terms), service).run()


def test_m40_15_cameras_lose_2_percent_where_they_lost_40_with_a_p99_below_300_ms():
    before = crowd(items_max=300, policy="drop_newest")
    assert loss(before) >= 0.40 and p99_s(before) > 1.0
    after = crowd(items_max=64, policy=forebay.Backoff("50ms", cap="1s"), ladder=LADDER)
    assert loss(after) <= 0.02 and p99_s(after) < 0.3
    assert all(one.adds_up for one in after.streams.values())


def test_m40_m43_a_camera_that_is_pressed_waits_50_100_200_ms_and_never_more_than_a_second():
    waits = [forebay.Backoff("50ms", cap="1s").wait_s(tries) for tries in range(1, 9)]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_m43_a_stage_holds_64_frames_each_waits_500_ms_for_room_and_3_failures_in_5_s_open_its_breaker():
    queue = forebay.Queue(64, put_timeout="500ms", on_full=forebay.Backoff("50ms", cap="1s"))
    breaker = forebay.Breaker(failures=3, window="5s")
    stage = forebay.Stage(abs, queue=queue, breaker=breaker, fallback=abs)
    assert (stage.terms.items_max, stage.put_timeout_s) == (64, 0.5)
    gate = Gate(stage.terms)
    let = [gate.offer(Ticket("cam", number, 0.0), now=0.0) for number in range(65)]
    assert [one.entered for one in let] == [True] * 64 + [False] and let[64].reason is None, (
        "it waits for room"
    )

    core = CircuitBreaker(breaker._circuit.core.policy)
    for at in (0.0, 2.6, 5.1):  # the first has gone from the window when the third comes
        core.ended(core.ask(now=at), Ending.BAD, now=at, took_s=0.01)
    assert isinstance(core.ask(now=5.2), Permit)
    core.ended(core.ask(now=7.0), Ending.BAD, now=7.0, took_s=0.01)
    assert not isinstance(core.ask(now=7.1), Permit)
