"""What is reserved for urgent jobs, and what is left to the others."""

import pytest

from forebay.core import settle
from forebay.core.job import Job
from forebay.core.ledger import Ledger
from forebay.core.reserve import others_max

T0 = 1_800_000_000.0


@pytest.mark.parametrize(
    ("reserve", "replicas", "each", "others"),
    [(0.0, 4, 1, None), (0.25, 4, 1, 3), (0.2, 4, 1, 3), (0.5, 4, 8, 16), (0.9, 4, 1, 1), (0.01, 10, 1, 9),
     (0.3, 10, 1, 7), (0.5, 1, 1, None), (0.5, 2, 1, 1), (0.99, 2, 1, 1)],
)  # fmt: skip
def test_at_least_one_replica_is_kept_and_one_is_left(reserve, replicas, each, others):
    assert others_max(reserve, replicas, each) == others


def first_wait(others):
    """How long an urgent job waits that comes to four replicas full of long batch work."""
    book, now, running = Ledger(), T0, []
    book.set_reserve("t", others)
    book.enqueue([Job(book.new_id(T0), "t", b"{}", T0, T0, priority=8) for _ in range(40)], now=T0)
    urgent = Job(book.new_id(T0 + 1), "t", b"{}", T0 + 1, T0 + 1, priority=2)
    while True:
        if now >= urgent.run_at:
            book.enqueue([urgent], now=now)
        for lease in book.lease("t", limit=4 - len(running), lease_s=1e9, worker="w", now=now):
            if lease.job.id == urgent.id:
                return now - urgent.run_at
            running.append((now + 60.0, lease))
        assert len(running) <= 4
        ends = min(at for at, _ in running)
        now = urgent.run_at if now < urgent.run_at else ends
        for one in [one for one in running if one[0] <= now]:
            running.remove(one)
            book.commit([settle.complete(one[1], output=b"1", now=now)], now=now)


def test_batch_work_never_holds_every_replica():
    assert first_wait(None) == 59.0
    assert first_wait(3) == 0.0
