"""F004, F042: settings that contradict each other stop the start; a clock that is set harms nobody."""

import os
import subprocess
import sys
import time

import pytest

from forebay.clock import SystemClock
from tests.e2e.harness import APPS


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"FOREBAY_LEASE": "2s", "FOREBAY_HEARTBEAT": "2s"}, ("heartbeat", "lease")),
        ({"FOREBAY_LEASE": "1s"}, ("heartbeat", "lease")),
        ({"FOREBAY_LEASE": "0.1s"}, ("lease",)),
        ({"FOREBAY_LEASES": "5s"}, ("FOREBAY_LEASES", "FOREBAY_LEASE")),
    ],
)
def test_f004_settings_that_lead_to_double_runs_are_refused_by_name(tmp_path, env, named):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    command = [sys.executable, "-m", "forebay", "serve", str(APPS / "basic.py"), "--port", "0"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=clean | env, capture_output=True, text=True, timeout=50, check=False
    )
    assert ended.returncode == 2, ended
    assert len(ended.stderr.strip().splitlines()) == 1 and all(name in ended.stderr for name in named), ended
    assert not list(tmp_path.iterdir()), "something was made before it was refused"


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_f042_a_clock_that_is_set_moves_no_lease_and_no_delay(monkeypatch, step_s):
    clock = SystemClock()
    before = clock.now()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + step_s)
    assert 0.0 <= clock.now() - before < 5.0
