"""until: wait for a condition with a bound, in real time; for tests of real processes."""

import time

LOOK_EVERY_S = 0.02


def until(condition, wait_max_s, what):
    """Return the first true value of `condition()`; fail with `what` when there was none in time."""
    ends_at = time.monotonic() + wait_max_s
    while not (value := condition()):
        assert time.monotonic() < ends_at, f"not in {wait_max_s} s: {what}"
        time.sleep(LOOK_EVERY_S)
    return value
