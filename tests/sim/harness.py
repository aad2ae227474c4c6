"""What the simulator's tests share: stores under it, one history by seed, and the smallest plan that fails."""

from forebay.brokers.sqlite.store import SqlBook
from forebay.core.ledger import Ledger
from forebay.core.ledger_order import forget_service
from forebay.core.lifecycle import State
from forebay.sim.invariants import BrokenError
from forebay.sim.plan import START, draw_plan
from forebay.sim.world import World

REPLAYS_MAX = 400  # of one shrinking


class Differ(AssertionError):
    """The engine and the Ledger gave different answers to the same call."""


class Twin:
    """Real SQL and the Ledger side by side: every answer is compared; the Ledger is the oracle."""

    def __init__(self, sql, ledger):
        self.sql, self.ledger = sql, ledger

    def new_id(self, now):
        self.ledger._tick(now)  # both stores have seen this time
        return self.sql.new_id(now)

    def __getattr__(self, verb):
        ours, theirs = getattr(self.ledger, verb), getattr(self.sql, verb)

        def both(*args, **kwargs):
            expected, got = ours(*args, **kwargs), theirs(*args, **kwargs)
            if expected != got:
                raise Differ(f"{verb}{args}{kwargs}: the engine says {got!r}, the Ledger {expected!r}")
            return got

        return both


def twin():
    return Twin(SqlBook.in_memory(now=START), Ledger())


def reopen(book, now):
    """What closing and opening the store does: whatever runs is overdue at once."""
    if isinstance(book, Twin):
        return Twin(SqlBook(book.sql.shelf.connection, now=now), reopen(book.ledger, now))
    book._tick(now)
    forget_service(book._shelf)
    for entry in book._shelf.jobs.values():
        if entry.state is State.RUNNING:
            book._shelf.renew(entry, min(entry.lease_until, now))
    return book


def play(plan, make_book=Ledger, **fields):
    """Play one history; raises BrokenError, Differ or AssertionError when something does not hold."""
    book = make_book()
    world = World(plan, book, reopen=reopen, **fields)
    played = world.run()
    ledger = getattr(book, "ledger", book)
    problems = ledger.audit()
    assert not problems, problems
    return played


def fails(plan, make_book=Ledger):
    try:
        play(plan, make_book)
    except (AssertionError, KeyError, IndexError, AttributeError, TypeError, ValueError) as error:
        return error
    return None


def shrink(plan, failing):
    """Return the smallest plan found that still fails: drops halves, then quarters, then single pieces, of
    the faults and of the jobs."""
    replays = 0
    for what in ("faults", "jobs", "faults"):
        size = max(1, len(getattr(plan, what)) // 2)
        while size:
            start = 0
            while start < len(getattr(plan, what)) and replays < REPLAYS_MAX:
                smaller = plan.without(**{what: tuple(range(start, start + size))})
                replays += 1
                if failing(smaller):
                    plan = smaller
                else:
                    start += size
            size //= 2
    return plan


def story(plan, make_book, error):
    """What a failing run prints: the seed, and the smallest schedule that shows it."""
    small = shrink(plan, lambda one: fails(one, make_book) is not None)
    lines = [f"seed {plan.seed}: {error}", f"  smallest: {fails(small, make_book)}"]
    lines += [
        f"  nodes={small.nodes} replicas={small.replicas} lease_s={small.lease_s} latency_s={small.latency_s}"
    ]
    lines += [f"  {job}" for job in small.jobs] + [f"  {fault}" for fault in small.faults]
    lines += [f"  again: tests.sim.harness.play(draw_plan({plan.seed}))"]
    return "\n".join(lines)


def campaign(seeds, make_book=Ledger):
    """Play every seed; the first that fails is told with its seed and its smallest schedule."""
    events = 0
    for seed in seeds:
        plan = draw_plan(seed)
        error = None
        try:
            events += play(plan, make_book).events
        except (AssertionError, KeyError, IndexError, AttributeError, TypeError, ValueError) as caught:
            error = caught
        if error is not None:
            raise AssertionError(story(plan, make_book, error)) from error
    return events


__all__ = ["BrokenError", "Differ", "Twin", "campaign", "fails", "play", "reopen", "shrink", "story", "twin"]
