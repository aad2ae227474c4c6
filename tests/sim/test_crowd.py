"""A quiet tenant beside a noisy one: its p99 wait is at most twice what it is alone."""

import pytest

from forebay.brokers.sqlite import SqlBook
from forebay.core.fairness import FairShare
from forebay.core.ledger import Ledger
from tests.sim.crowd import p99, waits

BOOKS = {"ledger": Ledger, "sqlite": SqlBook.in_memory}


@pytest.mark.parametrize("book", BOOKS)
@pytest.mark.parametrize("burst", [20, 100])
def test_beside_a_hundred_times_as_many_jobs_a_quiet_tenant_waits_twice_as_long_at_most(book, burst):
    bursts = 400 // burst
    alone = p99(waits(BOOKS[book](), noisy=False, burst=burst, bursts=bursts))
    beside = p99(waits(BOOKS[book](), noisy=True, burst=burst, bursts=bursts))
    assert beside <= 2 * alone, (alone, beside)


@pytest.mark.parametrize("book", BOOKS)
def test_beside_heavy_jobs_it_waits_for_one_of_them_to_end_as_well(book):
    alone = p99(waits(BOOKS[book](), noisy=False))
    beside = p99(waits(BOOKS[book](), noisy=True, noisy_s=1.0))
    assert beside <= 2 * alone + 1.2, (alone, beside)


@pytest.mark.parametrize("book", BOOKS)
def test_a_bound_on_the_noisy_one_keeps_replicas_free_of_heavy_jobs(book):
    alone = p99(waits(BOOKS[book](), noisy=False))
    beside = p99(waits(BOOKS[book](), noisy=True, noisy_s=1.0, noisy_max=2))
    assert beside <= 2 * alone, (alone, beside)


@pytest.mark.parametrize("book", BOOKS)
def test_without_turns_it_waits_for_the_whole_backlog(book, monkeypatch):
    monkeypatch.setattr(FairShare, "turn_on", lambda self: None)
    alone = p99(waits(BOOKS[book](), noisy=False, bursts=5))
    assert p99(waits(BOOKS[book](), noisy=True, bursts=5)) > 20 * alone
