"""Entry: who is let in, who makes room, and when those that are refused should come back."""

import pytest

from forebay.core import entry
from forebay.core.admission import Reason, Rejected
from forebay.core.basin import Asked
from forebay.core.entry import MARGIN_SHARE, NO_WORKER_S, look
from forebay.core.feasibility import Foretold
from forebay.core.job import Job
from forebay.core.requests import End, Request, RequestPolicy
from forebay.core.shedding import RETRY_MAX_S, SPREAD_SHARE
from tests.core.serving import POLICY, RequestRig
from tests.sim.rig import a_spec


def a_busy_rig(waiting=0, tenant="", **more):
    """A batch of sixteen has just begun: 52 ms."""
    rig = RequestRig(**more).learn_model()
    for _ in range(16):
        assert isinstance(rig.offer(), Request)
    (run,) = rig.poll()
    assert len(run.items) == 16
    for _ in range(waiting):
        assert isinstance(rig.offer(deadline_s=0.3, tenant=tenant), Request)
    return rig


def test_before_anything_is_measured_all_that_fits_is_let_in():
    rig = RequestRig(policy=POLICY)
    rig.ask()
    assert all(isinstance(rig.offer(deadline_s=0.001), Request) for _ in range(10))
    refused = rig.offer()
    assert refused.reason is Reason.FULL and refused.limit == 10 and refused.retry_after_s > 0


def test_the_bound_in_bytes_holds_too():
    rig = RequestRig(policy=POLICY)
    rig.ask()
    assert isinstance(rig.offer(payload=b"x" * 90), Request)
    assert rig.offer(payload=b"x" * 11).reason is Reason.BYTES_FULL


def test_what_can_start_at_once_is_let_in_although_it_has_no_time_to_spare():
    rig = RequestRig().learn_model()
    assert isinstance(rig.offer(deadline_s=0.0221), Request)


def test_what_would_be_late_is_refused_with_the_deadline_that_would_do():
    rig = a_busy_rig(waiting=64)
    refused = rig.offer(deadline_s=0.301)
    assert refused.reason is Reason.TOO_LATE
    needed_s = refused.offer.deadline_needed_at - rig.now
    assert 0.31 < needed_s < 0.36  # 52 ms that run, four batches that wait, its own, and the margin
    assert isinstance(rig.offer(deadline_s=needed_s + 0.001), Request)


def test_a_tenth_of_the_time_is_kept_free_for_the_way_here_and_back():
    rig = a_busy_rig()
    rig.d.hand.basin.rates.clear()  # nobody else comes
    alone_s = 0.052 + 0.022
    assert isinstance(rig.offer(deadline_s=1.05 * alone_s), Rejected)
    rig.d.hand.basin.rates.clear()
    assert isinstance(rig.offer(deadline_s=1.02 * alone_s / (1 - MARGIN_SHARE)), Request)


def test_one_whose_time_is_over_when_it_is_read_is_refused_whatever_is_known():
    """Before anything was measured, and where one would go and see: its answer would come too late."""
    for rig in (RequestRig(), RequestRig().learn_model()):
        now = rig.now
        asked = Asked("t", "", 5, 1, now - 0.25, now - 0.05)
        refused = look(rig.d.hand, asked, now=now, jitter=0.0)
        assert refused.reason is Reason.TOO_LATE and refused.retry_after_s > 0
        assert refused.told == "0.25 s had passed when it was read"


def test_one_that_waited_to_be_read_has_the_rest_of_its_time_alone():
    rig, now = a_busy_rig(), 100.0  # the next one would be done after 52 and 22 to 52 ms
    assert rig.now == now
    assert look(rig.d.hand, Asked("t", "", 5, 1, now, now + 0.2), now=now, jitter=0.0) is None
    waited = Asked("t", "", 5, 1, now - 0.13, now + 0.07)
    assert look(rig.d.hand, waited, now=now, jitter=0.0).reason is Reason.TOO_LATE


def learn_singles(rig):
    for _ in range(20):
        rig.d.hand.tasks["t"].fit.observe(1, 0.022)
    return rig


def test_where_single_calls_alone_were_seen_a_first_batch_surely_leaves_half_its_time_and_one_more_may_wait():
    """Nobody knows what a batch takes. Four take 88 ms at the most; while they run and tell, sixteen wait."""
    rig = learn_singles(RequestRig())
    first = [rig.offer() for _ in range(20)]
    (run,) = rig.poll()
    assert len(run.items) == 4 and 0.022 * len(run.items) <= 0.1
    assert any(isinstance(one, Rejected) for one in first)
    for _ in range(40):
        rig.offer()
    assert 16 <= len(rig.d.hand.basin.reservoirs["t"]) <= 24
    rig.done(*(tag for tag, _ in run.items), after=0.020 + 0.002 * len(run.items))
    assert len(rig.ran[-1].items) == 16


def test_what_is_known_to_have_passed_on_the_way_here_is_not_kept_free_once_more():
    rig = a_busy_rig()  # the next one would be done after 52 + 22 ms
    rig.d.hand.basin.rates.clear()

    def verdict(has_s):
        rig.d.hand.basin.rates.clear()
        asked = Asked("t", "", 5, 1, rig.now + has_s - 0.2, rig.now + has_s)
        return look(rig.d.hand, asked, now=rig.now, jitter=0.0)

    # A tenth of 0.2 s is kept free for the ways, half of it for each.
    assert verdict(0.074 + 0.0101) is None
    assert verdict(0.074 + 0.0099).reason is Reason.TOO_LATE


def test_a_process_that_is_late_itself_promises_less():
    rig = a_busy_rig(waiting=48)
    rig.d.hand.basin.lag_s = 0.05
    assert rig.offer(deadline_s=0.3).reason is Reason.TOO_LATE
    rig.d.hand.basin.lag_s = 10.0
    assert isinstance(rig.offer(deadline_s=0.5), Request), "one stall must not shut the door"
    rig.d.hand.basin.lag_s = 0.0
    assert isinstance(rig.offer(deadline_s=0.3), Request)


def test_the_lower_classes_leave_the_last_part_to_the_others():
    rig = RequestRig(policy=POLICY)
    rig.ask()
    for _ in range(9):
        assert isinstance(rig.offer(deadline_s=10.0, priority=8), Request)
    assert rig.offer(deadline_s=10.0, priority=8).reason is Reason.FULL
    assert isinstance(rig.offer(deadline_s=10.0), Request)


def test_at_the_bound_the_last_of_a_lower_class_makes_room():
    rig = RequestRig(policy=POLICY)
    rig.ask()
    for _ in range(9):
        rig.offer(deadline_s=10.0, priority=8)
    rig.offer(deadline_s=10.0)
    assert isinstance(rig.offer(deadline_s=10.0), Request)
    assert rig.ends() == {"r10": "shed"}
    assert rig.told["r10"].retry_after_s > 0


def test_a_more_urgent_one_goes_first_and_pushes_out_what_would_now_be_late():
    rig = a_busy_rig()
    low = [rig.offer(deadline_s=0.15, priority=8) for _ in range(16)]
    assert all(isinstance(one, Request) for one in low)
    urgent = [rig.offer(deadline_s=0.15, priority=2) for _ in range(16)]
    assert all(isinstance(one, Request) for one in urgent)
    assert set(rig.ends().values()) == {"shed"}
    assert set(rig.ends()) <= {one.job.id for one in low}


def test_one_tenant_that_floods_makes_room_for_another():
    rig = a_busy_rig()
    while isinstance(rig.offer(tenant="loud"), Request):
        pass
    assert isinstance(rig.offer(tenant="quiet"), Request)
    assert list(rig.ends().values()) == ["shed"]
    assert all(ended.request.job.tenant == "loud" for ended in rig.told.values())


def test_a_flood_gets_nothing_from_its_own_flood():
    rig = a_busy_rig()
    while isinstance(rig.offer(tenant="loud"), Request):
        pass
    assert isinstance(rig.offer(tenant="loud"), Rejected) and not rig.told


def test_refused_callers_are_told_different_times_at_the_pace_of_the_task():
    rig = a_busy_rig(waiting=64)
    times = [rig.offer(deadline_s=0.301, jitter=0.0).retry_after_s for _ in range(100)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(100 * 0.052 / 16, rel=0.05)
    again = rig.offer(deadline_s=0.301, jitter=0.99).retry_after_s
    assert times[-1] < again <= (times[-1] + 0.01) * (1 + SPREAD_SHARE)
    for _ in range(5_000):
        rig.offer(deadline_s=0.301)
    assert rig.offer(deadline_s=0.301, jitter=0.99).retry_after_s <= RETRY_MAX_S * (1 + SPREAD_SHARE)


def test_without_a_replica_requests_wait_a_moment_and_are_then_refused():
    rig = RequestRig(replicas=0)
    assert isinstance(rig.offer(deadline_s=60.0), Request)
    rig.now += NO_WORKER_S
    refused = rig.offer(deadline_s=60.0)
    assert refused.reason is Reason.NO_WORKER and refused.retry_after_s > 0
    rig.d.replica_ready(1)
    rig.poll()
    assert isinstance(rig.offer(deadline_s=60.0), Request)


def test_a_look_takes_nothing():
    rig = a_busy_rig()
    asked = Asked("t", "", 5, 1, rig.now, rig.now + 0.2)
    before = len(rig.d.hand.basin.reservoirs["t"])
    assert look(rig.d.hand, asked, now=rig.now, jitter=0.5) is None
    assert len(rig.d.hand.basin.reservoirs["t"]) == before and not rig.told


def test_an_estimate_that_is_old_is_tried_again_by_one_request():
    rig = RequestRig().learn_model(fixed_s=1.0)
    rig.d.hand.tasks["t"].last_run_at = rig.now - 0.5
    assert rig.offer().reason is Reason.TOO_LATE
    rig.now += 1.0
    request = rig.ask()
    assert isinstance(request, Request) and request.probe and len(rig.ran) == 1
    assert rig.offer().reason is Reason.TOO_LATE


def test_what_runs_over_its_time_is_not_taken_for_nearly_done():
    rig = a_busy_rig()
    rig.d.hand.basin.rates.clear()
    rig.now += 0.150  # three times what a batch takes
    assert isinstance(rig.offer(deadline_s=0.04), Rejected)
    rig.d.hand.basin.rates.clear()
    assert isinstance(rig.offer(deadline_s=0.1), Request)


def test_functions_that_share_replicas_wait_for_each_other():
    rig = RequestRig(a_spec("quick"), a_spec("slow"))
    for task, took_s in (("quick", 0.001), ("slow", 0.1)):
        rig.learn(took_s, task=task)
    rig.ask("slow", deadline_s=10.0)
    for _ in range(3):
        assert isinstance(rig.offer("slow", deadline_s=0.6), Request)
    assert isinstance(rig.offer("quick", deadline_s=0.05), Rejected), "one runs that takes longer"
    assert isinstance(rig.offer("quick", deadline_s=0.2), Request), "it goes before those that wait"
    told = rig.offer("quick", deadline_s=0.61)
    assert isinstance(told, Request), told
    assert isinstance(rig.offer("quick", deadline_s=1.0), Request)


def test_async_handlers_run_beside_each_other():
    rig = RequestRig(a_spec(concurrency=4))
    rig.learn(0.1)
    for _ in range(4):
        assert isinstance(rig.ask(deadline_s=0.12), Request)
    assert rig.ask(deadline_s=0.12).reason is Reason.TOO_LATE


def test_a_policy_with_everything_for_requests_leaves_the_jobs_what_is_over():
    assert RequestPolicy(jobs_share=0.0).jobs_share == 0.0


def asked_of(rig, deadline_s=0.2):
    """What is known of the next request of the rig before its body has come."""
    job = Job("next", "t", b"1", rig.now, rig.now, 5, 2, None, rig.now + deadline_s, "")
    return job, Asked(job.task, job.tenant, job.priority, job.size, job.created_at, job.deadline_at)


def test_a_request_whose_body_came_with_its_head_is_judged_once(monkeypatch):
    rig = a_busy_rig()
    job, asked = asked_of(rig)
    assert look(rig.d.hand, asked, now=rig.now, jitter=0.5) is None
    with monkeypatch.context() as patch:
        patch.setattr(entry, "_judge", None)
        assert isinstance(entry.admit(rig.d.hand, job, now=rig.now + 0.001, jitter=0.5), Request)
    assert rig.d.hand.basin.looked is None, "it stands for one request"


@pytest.mark.parametrize("since", ["time", "another one", "another size"])
def test_a_look_does_not_stand_for_long_nor_for_others(since, monkeypatch):
    rig = a_busy_rig()
    job, asked = asked_of(rig)
    judged, judge = [], entry._judge
    assert look(rig.d.hand, asked, now=rig.now, jitter=0.5) is None
    if since == "another one":
        rig.offer()
    monkeypatch.setattr(
        entry, "_judge", lambda hand, asked, **told: judged.append(asked) or judge(hand, asked, **told)
    )
    now = rig.now + (0.01 if since == "time" else 0.0)
    if since == "another size":
        job = job._replace(payload=job.payload + b" ")
    entry.admit(rig.d.hand, job, now=now, jitter=0.5)
    assert len(judged) == 1


def test_who_was_to_make_room_and_has_gone_is_looked_for_anew():
    rig = RequestRig(policy=POLICY)
    rig.ask()
    for _ in range(10):
        rig.offer(tenant="loud")
    basin = rig.d.hand.basin
    job, asked = asked_of(rig)
    assert look(rig.d.hand, asked, now=rig.now, jitter=0.5) is None
    victim = basin.looked.victim
    assert victim is not None
    basin.end(victim, End.GONE)
    assert isinstance(entry.admit(rig.d.hand, job, now=rig.now, jitter=0.5), Request)
    assert [ended.end for ended in basin.take_ended()] == [End.GONE]


@pytest.mark.parametrize(
    ("starts_s", "deadline_s", "let_in"),
    [
        (0.180, 0.300, False),  # once the doubt would fit, twice does not
        (0.150, 0.300, True),
        (0.050, 0.170, True),  # twice would leave no line, and with none the batches are small
        (0.090, 0.170, False),  # nor does once fit
    ],
)
def test_of_uneven_runs_twice_the_doubt_is_kept_free_where_a_line_fits_nevertheless(
    starts_s, deadline_s, let_in
):
    asked = Asked("t", "", 5, 1, 100.0, 100.0 + deadline_s)
    told = Foretold(starts_s, starts_s + 0.052, doubt_s=0.030)
    late_s = entry._late_s(RequestRig().d.hand.basin, asked, told, 100.0)
    assert (late_s <= 0) is let_in
