"""Newcomers: whoever goes before others is let in only where these are in time nevertheless."""

import pytest

from forebay.core import serving
from forebay.core.admission import Reason, Rejected
from forebay.core.live_fit import LiveFit
from forebay.core.newcomer import LOOKED_MAX
from forebay.core.parting import best_part, in_time
from forebay.core.requests import Request
from forebay.core.service import ServiceFit
from tests.core.serving import RequestRig
from tests.core.test_entry import learn_singles
from tests.sim.rig import a_spec


def a_line(waiting, deadline_s=0.120, **more):
    """A batch of sixteen has just begun, 52 ms, and so many wait behind it."""
    rig = RequestRig().learn_model()
    for _ in range(16):
        rig.offer()
    rig.poll()
    rig.d.hand.basin.rates.clear()  # nobody else is expected
    for _ in range(waiting):
        assert isinstance(rig.offer(deadline_s=deadline_s, **more), Request)
        rig.d.hand.basin.rates.clear()
    return rig


def test_who_would_push_the_last_of_a_full_batch_out_of_its_time_is_refused():
    rig = a_line(16)  # done after 104 ms, the next batch after 126 at the least
    refused = rig.offer(deadline_s=0.119)
    assert refused.reason is Reason.TOO_LATE and refused.retry_after_s > 0
    rig.done(*(tag for tag, _ in rig.ran[0].items), after=0.052)
    rig.done(*(tag for tag, _ in rig.ran[1].items), after=0.052)
    assert set(rig.ends().values()) == {"done"} and len(rig.told) == 32


def test_it_is_told_the_deadline_that_costs_nobody_anything():
    rig = a_line(16)
    needed_s = rig.offer(deadline_s=0.119).offer.deadline_needed_at - rig.now
    assert isinstance(rig.offer(deadline_s=needed_s + 0.001), Request)


def test_who_goes_before_others_that_have_the_time_is_let_in():
    rig = a_line(16, deadline_s=0.2)
    assert isinstance(rig.offer(deadline_s=0.119), Request)


def test_who_goes_before_the_last_of_a_batch_that_is_full_enough_for_its_first_is_refused():
    """Ten end after 52 and 40 ms: the first has 98 and keeps 5, so an eleventh would leave the last one over."""
    rig = a_line(8, deadline_s=0.0985)
    for _ in range(2):
        assert isinstance(rig.offer(deadline_s=0.110), Request)
        rig.d.hand.basin.rates.clear()
    rig.d.hand.basin.refused_at["t"] = rig.now  # for more come than can be done
    assert isinstance(rig.offer(deadline_s=0.109), Rejected)
    rig.d.hand.basin.rates.clear()
    assert isinstance(rig.offer(deadline_s=0.2), Request), "who goes to the end costs nobody"


def test_those_of_a_less_urgent_class_make_room():
    rig = a_line(16, priority=8, deadline_s=0.150)
    assert isinstance(rig.offer(deadline_s=0.119), Request)


def test_a_tenant_that_crowds_makes_room_where_another_would_push_it_out():
    rig = a_line(16, tenant="loud")
    assert isinstance(rig.offer(deadline_s=0.119, tenant="quiet"), Request)
    assert [ended.request.job.tenant for ended in rig.told.values()] == ["loud"]
    assert list(rig.ends().values()) == ["shed"]


def test_single_calls_are_asked_too():
    rig = RequestRig(a_spec())
    rig.learn(0.010)
    rig.ask(deadline_s=1.0)
    for _ in range(10):
        assert isinstance(rig.offer(deadline_s=0.125), Request)
    assert isinstance(rig.offer(deadline_s=0.100), Request)  # the last of them is done after 120 ms now
    assert rig.offer(deadline_s=0.100).reason is Reason.TOO_LATE
    assert isinstance(rig.offer(deadline_s=1.0), Request)


def test_of_runs_of_thousands_no_more_than_a_thousand_members_are_looked_at(monkeypatch):
    rig = RequestRig(a_spec(kind="class", batch_max=4096)).learn_model()
    rig.ask(deadline_s=1000.0)
    for _ in range(3_000):
        assert isinstance(rig.offer(deadline_s=1000.0), Request)
    reservoir = rig.d.hand.basin.reservoirs["t"]
    looked, due = [], reservoir.due
    monkeypatch.setattr(type(reservoir), "due", lambda _, place: looked.append(place) or due(place))
    assert isinstance(rig.offer(deadline_s=500.0), Request)
    assert 0 < len(looked) <= LOOKED_MAX


@pytest.mark.parametrize("spare_s", [0.0001, 0.0021])
def test_what_could_start_at_once_is_let_in_where_its_turn_runs_it(spare_s):
    rig = RequestRig().learn_model()
    rig.d.hand.tasks["t"].last_run_at = rig.now
    verdict = rig.ask(deadline_s=0.022 + spare_s)
    assert isinstance(verdict, Request) is bool(rig.ran)
    assert not rig.told, "nobody is let in to be told in the same moment that it is late"


def test_of_a_law_that_is_not_known_yet_the_line_behind_the_first_batch_is_asked_by_what_is_told():
    rig = learn_singles(RequestRig())
    for _ in range(8):
        rig.offer()
    rig.poll()
    for _ in range(40):
        rig.offer()
    for _ in range(40):
        rig.offer(deadline_s=0.199)  # read later, come earlier
    assert 16 <= len(rig.d.hand.basin.reservoirs["t"]) <= 24


def a_law():
    fit = ServiceFit()
    for number in range(32):
        fit.observe(1 + number % 16, 0.020 + 0.002 * (1 + number % 16))
    return fit


@pytest.mark.parametrize(
    ("deadlines", "crowd", "done"),
    [
        ([0.0601] * 16, True, 16),
        ([0.0601] * 17, True, 16),  # one more run would be late
        ([0.100] * 17, True, 17),
        ([0.0411] + [0.0601] * 15, True, 15),  # the first is given up for the others
        ([0.0411] + [0.0601] * 15, False, 9),  # where no crowd is nobody is: the others are late
        ([0.010] + [0.0601] * 15, False, 15),
    ],
)
def test_how_many_of_a_line_are_in_time(deadlines, crowd, done):
    line = [(5, deadline) for deadline in deadlines]
    free_s = 0.008 if crowd else 0.002
    law = a_law().run_s
    assert in_time(law, line, room=16, at=0.0, beside=1, free_s=free_s, crowd=crowd) == done
    if crowd:
        skip, size = best_part(law, line[:16], 0.0, free_s)
        assert skip + size <= 16 and size >= done - 1


def test_those_who_are_late_anyway_are_given_up_together_and_take_no_place_in_a_run():
    line = [(5, 0.001)] * 40 + [(5, 0.3)] * 20
    terms = {"room": 16, "at": 0.0, "beside": 1, "free_s": 0.002, "crowd": True}
    assert best_part(a_law().run_s, line[:16], 0.0, 0.002) == (16, 0)
    assert in_time(a_law().run_s, line, **terms) == 20


def test_a_line_of_those_who_are_late_anyway_is_looked_at_once():
    asked = []

    def takes(items):
        asked.append(items)
        return 0.1 + 0.001 * items

    line = [(5, 0.05)] * LOOKED_MAX
    assert in_time(takes, line, room=64, at=0.0, beside=1, free_s=0.002, crowd=True) == 0
    assert len(asked) <= 4 * LOOKED_MAX


def test_where_a_model_slows_down_thousands_that_are_late_for_it_are_answered_at_once(monkeypatch):
    looks = []
    monkeypatch.setattr(serving, "best_part", lambda *terms: looks.append(1) or best_part(*terms))
    rig = RequestRig(a_spec(kind="class", batch_max=64)).learn_model()
    for _ in range(2_000):
        assert isinstance(rig.offer(deadline_s=30.0), Request)
        rig.d.hand.basin.rates.clear()
    for size in range(1, 64):
        rig.d.hand.tasks["t"].fit.observe(size, 40.0)
    rig.poll()
    assert len(rig.told) > 1_900
    assert len(looks) <= 2 * 2_000 / 64 + 64


# -- tasks that share replicas -----------------------------------------------------------------------


def two_lines(each_a, each_b, waiting=10):
    """A run of 50 ms has just begun; so many of the one task wait behind it, with 5 ms to spare."""
    rig = RequestRig(a_spec("a"), a_spec("b"))
    rig.learn(0.05, task="a")
    rig.offer("a", deadline_s=1.0)
    rig.poll()
    for task, each_s in (("a", each_a), ("b", each_b)):
        rig.d.hand.tasks[task].fits[0] = LiveFit()
        rig.d.hand.tasks[task].refit()
        rig.learn(each_s, task=task)
    for _ in range(waiting):
        assert isinstance(rig.offer("b", deadline_s=1.25 * (0.05 + waiting * each_b)), Request)
    return rig


def test_who_would_push_those_of_another_task_out_of_their_time_is_refused():
    rig = two_lines(0.01, 0.01)
    verdicts = [rig.offer("a", deadline_s=0.12) for _ in range(4)]
    refused = [one for one in verdicts if isinstance(one, Rejected)]
    assert len(refused) == 1, "there are 30 ms, for three"
    assert {one.reason for one in refused} == {Reason.TOO_LATE}
    needed_s = refused[0].offer.deadline_needed_at - rig.now
    assert isinstance(rig.offer("a", deadline_s=needed_s + 0.001), Request), "behind all it costs nobody"


def test_a_short_one_may_take_the_place_of_one_of_another_task_that_takes_much_longer():
    rig = two_lines(0.002, 0.01)
    assert all(isinstance(rig.offer("a", deadline_s=0.12), Request) for _ in range(10))


def test_those_of_a_less_urgent_class_of_another_task_make_room():
    rig = two_lines(0.01, 0.01)
    assert all(isinstance(rig.offer("a", deadline_s=0.12, priority=2), Request) for _ in range(4))
