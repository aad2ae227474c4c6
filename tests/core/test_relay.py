"""Which hints are acknowledged, given back, asked for and sent again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.relay import (
    BACK_S,
    DEBT_MAX_S,
    HELD_MAX,
    HELD_MAX_S,
    HUNGRY_S,
    RECEIVED_MAX,
    Gap,
    Line,
    Pending,
    Take,
    Unannounced,
)

NOW = 1_000.0


def line(delays=True, hungry=True):
    one = Line("echo", delays=delays)
    if hungry:
        one.granted([], asked=1, now=NOW)
    return one


def test_nothing_is_asked_for_before_somebody_can_work():
    assert line(hungry=False).wanted(now=NOW) == 0


def test_who_got_less_than_it_asked_for_is_hungry_and_not_for_ever():
    one = line()
    assert one.wanted(now=NOW + HUNGRY_S) == HELD_MAX
    assert one.wanted(now=NOW + HUNGRY_S + 0.1) == 0


def test_who_got_all_it_asked_for_is_not_hungry():
    one = line()
    one.granted(["a"], asked=1, now=NOW, silent={"a"})
    assert one.wanted(now=NOW) == 0


def test_the_hint_of_a_leased_job_is_acknowledged():
    one = line()
    assert [one.received(job, job.upper(), now=NOW) for job in "ab"] == [Take.HELD] * 2
    assert one.granted(["b"], asked=1, now=NOW) == ["B"]
    assert one.held == 1 and one.debts == 0


def test_another_jobs_hint_stands_for_one_that_is_not_held():
    one = line()
    one.received("a", "A", now=NOW)
    assert one.granted(["z"], asked=1, now=NOW) == ["A"]


def test_a_lease_without_any_hint_is_a_debt_that_the_next_hint_pays():
    one = line()
    assert one.granted(["z"], asked=1, now=NOW) == []
    assert one.wanted(now=NOW) == 1
    assert one.received("q", "Q", now=NOW) is Take.PAID
    assert one.wanted(now=NOW) == 0 and one.received("r", "R", now=NOW) is Take.HELD


def test_a_late_hint_pays_the_debt_of_its_own_job_first():
    one = line()
    one.granted(["x", "y"], asked=2, now=NOW)
    assert one.received("y", "Y", now=NOW) is Take.PAID
    assert one.granted([], asked=1, now=NOW) == [] and one.debts == 1


def test_a_debt_is_forgiven_after_a_while():
    one = line()
    one.granted(["z"], asked=1, now=NOW)
    assert one.wanted(now=NOW + DEBT_MAX_S + 1) == 0 and one.debts == 0


def test_a_lease_of_a_job_that_nobody_announced_is_no_debt():
    one = line()
    one.granted(["z"], asked=1, now=NOW, silent={"z"})
    assert one.debts == 0


def test_a_second_hint_of_a_job_is_told_from_the_first():
    one = line()
    one.received("a", "A", now=NOW)
    assert one.received("a", "B", now=NOW) is Take.DOUBLE


def test_hints_held_when_an_empty_lease_was_asked_for_are_looked_into_once():
    one = line()
    one.received("a", "A", now=NOW)
    mark = one.mark()
    one.received("b", "B", now=NOW)  # came after it was asked for
    one.granted([], asked=4, now=NOW)
    assert one.doubted(now=NOW, mark=mark) == ["a"]
    assert one.doubted(now=NOW, mark=mark) == []


def test_a_hint_that_led_to_nothing_for_long_is_looked_into():
    one = line()
    one.received("a", "A", now=NOW)
    assert one.doubted(now=NOW + HELD_MAX_S - 0.1) == []
    assert one.doubted(now=NOW + HELD_MAX_S) == ["a"]


def test_hints_of_jobs_that_wait_no_more_are_acknowledged_and_others_given_back():
    one = line()
    for job in "ab":
        one.received(job, job.upper(), now=NOW)
    ids = one.doubted(now=NOW + HELD_MAX_S)
    assert one.looked(ids, {"b"}, now=NOW) == (["A"], ["B"]) and one.held == 0


def test_where_a_broker_cannot_keep_away_what_is_given_back_nothing_is_asked_for_meanwhile():
    for delays, wanted in ((True, HELD_MAX), (False, 0)):
        one = line(delays)
        one.received("a", "A", now=NOW)
        one.looked(one.doubted(now=NOW + HELD_MAX_S), {"a"}, now=NOW)
        assert one.wanted(now=NOW + BACK_S / 2) == wanted


def test_a_hint_that_the_store_could_not_be_asked_about_is_looked_into_again():
    one = line()
    one.received("a", "A", now=NOW)
    one.unknown(one.doubted(now=NOW + HELD_MAX_S), now=NOW + HELD_MAX_S)
    assert one.doubted(now=NOW + 2 * HELD_MAX_S) == ["a"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["hint", "lease", "look"]), st.integers(0, 30)), max_size=60))
def test_what_is_asked_for_and_held_stays_within_bounds(steps):
    one, now = line(), NOW
    for what, number in steps:
        now += 0.1
        if what == "hint":
            for count in range(min(number, one.wanted(now=now))):
                one.received(f"{number}-{count}", object(), now=now)
        elif what == "lease":
            one.granted([f"{now}-{count}" for count in range(number)], asked=16, now=now)
        else:
            one.looked(one.doubted(now=now, mark=one.mark()), set(), now=now)
        assert 0 <= one.wanted(now=now) <= RECEIVED_MAX and one.held <= RECEIVED_MAX + HELD_MAX


def test_what_is_missing_in_two_looks_running_is_sent_again():
    gap = Gap()
    assert gap.look(queued=10, hints=4) == (0, 0)
    assert gap.look(queued=9, hints=5) == (4, 0)
    assert gap.look(queued=9, hints=5) == (0, 0), "what was just sent is on its way"


def test_what_is_on_its_way_is_not_missing():
    gap = Gap()
    for _ in range(3):
        assert gap.look(queued=10, hints=4, coming=6) == (0, 0)


def test_hints_too_many_in_two_looks_running_are_looked_into():
    gap = Gap()
    assert [gap.look(queued=1, hints=hints) for hints in (9, 4)] == [(0, 0), (0, 3)]


def test_what_waits_to_be_sent_is_bounded_and_each_waits_once():
    pending = Pending(2)
    assert [pending.put("t", job) for job in ("a", "a", "b", "c")] == [True, True, True, False]
    assert len(pending) == 2 and pending.take() == ("t", ["a", "b"]) and not pending


def test_what_runs_already_is_left_out():
    pending = Pending()
    pending.put("t", "a")
    assert pending.drop("t", "a") and not pending.drop("t", "a") and not pending


def test_tasks_take_turns():
    pending = Pending()
    for task, job in (("t", "a"), ("t", "b"), ("u", "c")):
        pending.put(task, job)
    assert [pending.take(1) for _ in range(3)] == [("t", ["a"]), ("u", ["c"]), ("t", ["b"])]


def test_the_oldest_that_nobody_announced_are_forgotten():
    known = Unannounced(2)
    for job in "abc":
        known.add(job)
    known.discard("b")
    assert [job in known for job in "abc"] == [False, False, True]
