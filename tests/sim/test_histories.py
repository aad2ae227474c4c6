"""Histories: the same seed is the same history; nothing breaks in any of thousands of them."""

import hashlib
import os
import subprocess
import sys

import pytest

from forebay.core.ledger import Ledger
from forebay.core.lifecycle import FINAL
from forebay.sim.plan import draw_plan
from forebay.sim.world import World
from tests.sim import harness

FAST, LEDGER, SQL, CHUNK = 80, 6_000, 4_000, 500  # histories; together 10,000 in the slow lane


def digest(seeds):
    hashed = hashlib.sha256()
    for seed in seeds:
        played = World(draw_plan(seed), Ledger(), reopen=harness.reopen, keep_history=True).run()
        hashed.update(repr((played.history, played.events, played.took_s)).encode())
    return hashed.hexdigest()


def test_the_same_seed_is_the_same_history_in_another_process_with_another_hash_seed():
    here = digest(range(8))
    code = "from tests.sim.test_histories import digest; print(digest(range(8)))"
    for hash_seed in ("1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=50, check=True
        )
        assert run.stdout.strip() == here


def test_another_seed_is_another_history():
    assert digest([1]) != digest([2])


def test_no_invariant_breaks_over_the_ledger():
    harness.campaign(range(FAST))


def test_no_invariant_breaks_over_real_sql_and_every_answer_is_the_ledgers():
    harness.campaign(range(1_000_000, 1_000_000 + FAST // 5), harness.twin)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("start", range(0, LEDGER, CHUNK))
def test_no_invariant_breaks_in_a_long_campaign_over_the_ledger(start):
    harness.campaign(range(2_000_000 + start, 2_000_000 + start + CHUNK))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", range(0, SQL, CHUNK))
def test_no_invariant_breaks_in_a_long_campaign_over_real_sql(start):
    harness.campaign(range(3_000_000 + start, 3_000_000 + start + CHUNK), harness.twin)


def test_every_accepted_job_ends_whatever_went_wrong():
    for seed in range(500, 515):
        played = harness.play(draw_plan(seed))
        assert all(state in FINAL for state in played.states)


def test_a_store_that_answers_otherwise_than_the_ledger_is_noticed(monkeypatch):
    class Wrong(harness.SqlBook):
        def extend(self, claims, *, lease_s, now):
            return super().extend(claims, lease_s=lease_s + 1e-6, now=now)

    monkeypatch.setattr(harness, "SqlBook", Wrong)
    found = [
        seed for seed in range(30) if isinstance(harness.fails(draw_plan(seed), harness.twin), harness.Differ)
    ]
    assert found
