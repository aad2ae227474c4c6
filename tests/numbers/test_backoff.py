"""Numbers of a producer's patience, each under its own name."""

import pytest

from forebay.client.policy import CAP_S, Hint, Patience, backoff_s, floor_s


def waits(count):
    """The longest waits after so many failures in a row."""
    return [backoff_s(failures=number, draw=1.0) for number in range(1, count + 1)]


def test_m38_100_200_400_800_ms_and_never_more_than_2_s():
    assert waits(7) == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0] and CAP_S == 2.0


def test_m38_a_success_begins_anew():
    patience = Patience(now=0.0, retry_for_s=60.0)
    for _ in range(4):
        last = patience.wait_s(Hint(after_s=0.001), now=0.0, draw=0.999999)
    assert last == pytest.approx(0.8, rel=0.01)
    patience.success(0.0)
    assert patience.wait_s(Hint(after_s=0.001), now=0.0, draw=0.999999) == pytest.approx(0.1, rel=0.01)


def test_m39_a_job_of_50_ms_frees_no_place_before_25_ms():
    assert floor_s(0.050) == pytest.approx(0.025)
    assert all(backoff_s(failures=1, draw=draw, service_s=0.050) >= 0.025 for draw in (0.0, 0.5, 1.0))
    assert backoff_s(failures=1, draw=0.0, service_s=4.0, cap_s=5.0) >= 2.0
