"""What a process keeps of jobs for who waits has bounds, and nothing of it is told elsewhere."""

from forebay.brokers.shared import granted
from forebay.brokers.shared.granted import Granted
from forebay.brokers.shared.messages import messages_of
from forebay.brokers.shared.news import CHANGES_MAX, News
from forebay.core import settle
from forebay.core.job import Job, Lease, Settled
from forebay.core.lifecycle import State


def a_lease(number=0, *, fence=1, size=1):
    job = Job(f"j{number}", "echo", b"x" * size, 1.0, 1.0)
    return Lease(job, fence, 1, 31.0, "w", 1.0, 1.0)


def a_step(lease):
    return settle.complete(lease, output=b"1", now=2.0)


def test_how_a_job_ended_is_known_once_and_under_its_fence_alone():
    kept, lease = Granted(), a_lease()
    kept.put([lease])
    assert kept.settled(a_step(a_lease(fence=2)), 1.5) is None
    assert kept.settled(a_step(lease), 1.5) is None, "another holds it: what was kept is worth nothing"
    kept.put([lease])
    ended = kept.settled(a_step(lease), 1.5)
    assert ended.record().standing.started_at == 1.5 and ended.lease.job == lease.job
    assert kept.settled(a_step(lease), 1.5) is None and not len(kept)


def test_leases_that_are_kept_are_bounded_in_number_and_in_bytes():
    kept = Granted(most=3, bytes_most=100)
    kept.put([a_lease(number) for number in range(5)])
    assert [kept.of(a_step(a_lease(number))) is None for number in range(5)] == [True] * 2 + [False] * 3
    kept.put([a_lease(9, size=99)])
    assert len(kept) == 2
    kept.put([a_lease(9, size=1)])  # again, smaller: what it weighed before is forgotten
    kept.put([a_lease(8, size=97)])
    assert len(kept) == 3
    kept.put([a_lease(7, size=101)])
    assert not len(kept), "one too large for all of it"
    assert granted.GRANTED_MAX and granted.GRANTED_BYTES_MAX


def test_what_waits_to_be_told_elsewhere_is_bounded_and_bears_no_job():
    waiting = News()
    for _ in range(3):
        news, lease = News(), a_lease()
        for _ in range(CHANGES_MAX - 1):
            news.changed("j0", "echo", State.SUCCEEDED, Settled(lease, a_step(lease)))
        waiting.add_told(news)
    assert len(waiting.changes) == CHANGES_MAX
    assert all(change.settled is None for change in waiting.changes)
    assert sum(text.count("j0") for text in messages_of(waiting, "me")) == CHANGES_MAX
