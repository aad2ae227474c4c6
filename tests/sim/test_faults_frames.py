"""Faults of frames that queues and model servers really had (F077, F078), in virtual time."""

import pytest

from forebay.core.buffer import Backoff
from forebay.core.gate import GateTerms
from forebay.sim.frames import Camera, FrameWorld, Offer

PER_S, CALL_S, LASTS_S, BOUND = 30.0, 0.2, 120.0, 60  # six times what five frames a second can do
POLICIES = ("block", Backoff(), "drop_oldest", "drop_newest", "latest_only", "reject")


def played(policy, *, cameras=1, items_max=BOUND):
    world = FrameWorld(
        [Camera(stream=f"cam-{number}", per_s=PER_S, until_s=LASTS_S) for number in range(cameras)],
        GateTerms(items_max=items_max, policy=policy),
        lambda scales: CALL_S * len(scales),
    )
    most, offer = 0, world.gate.offer

    def watched(ticket, *, now):
        nonlocal most
        let = offer(ticket, now=now)
        most = max(most, world.gate.depth)
        return let

    world.gate.offer = watched
    world.run()
    return world, most


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_f077_frames_behind_slow_inference_never_pile_up_and_each_is_accounted_for(policy):
    world, most = played(policy)
    (account,) = world.accounts.streams.values()
    assert most <= BOUND
    assert account.sent == LASTS_S * PER_S == account.served + sum(account.dropped.values())
    assert account.served >= LASTS_S / CALL_S - 1, "and the model is never idle"


@pytest.mark.parametrize("policy", ["block", Backoff()], ids=str)
def test_f077_a_policy_that_waits_holds_its_camera_back(policy):
    world, _ = played(policy)
    offers = [one for one in world.trace if isinstance(one, Offer)]
    assert sum(not one.entered and one.reason is None for one in offers) >= 0.7 * len(offers)
    (account,) = world.accounts.streams.values()
    assert set(account.dropped) <= {"replaced", "ended"}, "what waits is replaced by what is newer"


@pytest.mark.parametrize("items_max", [1, 5, 60])
@pytest.mark.parametrize("policy", ["drop_oldest", "latest_only"])
def test_f078_a_live_frame_is_no_older_than_the_line_and_one_call_and_does_not_grow_older(policy, items_max):
    world, _ = played(policy, items_max=items_max)
    (account,) = world.accounts.streams.values()
    line = 1 if policy == "latest_only" else items_max
    assert account.latency.quantile(0.999) <= 1.05 * (line * CALL_S + 2 * CALL_S)
    # Waits of the frames themselves: what is taken in the last tenth is as fresh as what was taken in the first.
    captured = {
        (one.ticket[0], one.ticket[1]): one.ticket[2] for one in world.trace if isinstance(one, Offer)
    }
    ages = [
        (one.at, one.at - captured[frame])
        for one in world.trace
        if not isinstance(one, Offer)
        for frame in one.frames
    ]
    late = [age for at, age in ages if at >= 0.9 * LASTS_S]
    assert max(late) <= line * CALL_S + CALL_S


def test_f078_a_reader_that_keeps_all_would_serve_ever_older_ones():
    world, most = played("drop_newest", items_max=1_000_000)
    (account,) = world.accounts.streams.values()
    assert most > 2_000 and account.latency.quantile(0.5) > LASTS_S
