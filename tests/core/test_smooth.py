"""What frames need of a set of replicas, and what that leaves to jobs."""

import pytest

from forebay.core.smooth import LIVE_S, MET_SHARE, PEAK_S, Smooth


def frames(until, *, replicas=1, smooth=None, start=0.0):
    """Return what has seen frames twice a second that used so many replicas at once."""
    smooth, now = smooth or Smooth(), start
    while now <= until:
        smooth.came(now)
        smooth.used(replicas, now)
        now += 0.5
    return smooth


def test_nothing_is_kept_before_the_first_frame_and_two_seconds_after_the_last():
    assert not Smooth().live(0.0)
    smooth = frames(5.0)
    assert smooth.live(5.0 + LIVE_S)
    assert not smooth.live(5.1 + LIVE_S)


@pytest.mark.parametrize(("now", "kept"), [(0.0, 4), (PEAK_S - 0.5, 4), (PEAK_S + 0.5, 2), (30.0, 2)])
def test_all_replicas_are_kept_until_it_is_known_how_many_frames_use_at_once(now, kept):
    assert frames(now, replicas=2).kept(4, now) == kept


def test_no_more_are_kept_than_there_are_and_at_least_one():
    assert frames(30.0, replicas=9).kept(4, 30.0) == 4
    assert frames(30.0, replicas=0).kept(4, 30.0) == 1


def test_a_peak_is_kept_for_ten_seconds_at_least_and_forgotten_after_twenty():
    smooth = frames(20.0, replicas=1)
    smooth.used(3, 20.0)
    frames(29.5, smooth=smooth, start=20.5)
    assert smooth.kept(4, 29.5) == 3
    frames(41.0, smooth=smooth, start=30.0)
    assert smooth.kept(4, 41.0) == 1


def test_a_stream_that_comes_back_is_measured_anew():
    smooth = frames(30.0, replicas=1)
    smooth.came(60.0)
    assert smooth.kept(4, 60.0) == 4


def test_jobs_are_lent_a_small_share_of_the_frames_time_and_save_nothing_up():
    smooth = frames(0.0)
    run_s = 0.02
    assert not smooth.lends(run_s, 0.9 * run_s / MET_SHARE)
    assert smooth.lends(run_s, 1.1 * run_s / MET_SHARE)
    smooth.lent(1000.0)
    assert not smooth.lends(run_s, 1000.0 + 0.9 * run_s / MET_SHARE)
    assert smooth.lends(run_s, 1000.0 + 1.1 * run_s / MET_SHARE)


def test_who_waits_for_what_frames_leave_is_woken_when_that_may_be_more():
    smooth = frames(0.0)
    assert smooth.wake_at(0.002, 0.0) == pytest.approx(min(LIVE_S, 0.002 / MET_SHARE), abs=1e-3)
    assert smooth.wake_at(10.0, 0.0) == pytest.approx(LIVE_S, abs=1e-3)
    assert smooth.wake_at(10.0, 1.0) > 1.0
