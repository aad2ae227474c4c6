"""Serving and answering: what starts when, and how each request ends, exactly once."""

import pytest

from forebay.core import answering
from forebay.core.actions import KillReason
from forebay.core.admission import Reason
from forebay.core.breaker import BreakerPolicy, CircuitBreaker
from forebay.core.degraded import FALLBACK
from forebay.core.guard import Guard
from forebay.core.job import Job, JobError
from forebay.core.quarantine import DeadlyInput, fingerprint_of
from forebay.core.replicas import WAY_MAX_S, Replica
from forebay.core.requests import Request
from forebay.core.tenant import Held
from tests.core.serving import MODEL, RequestRig
from tests.sim.rig import BAD, CRASH, a_spec


def test_a_request_runs_at_once_and_is_answered_with_its_output():
    rig = RequestRig().learn_model()
    request = rig.ask()
    (run,) = rig.ran
    assert [lease.job.id for _, lease in run.items] == ["r1"] and run.items[0][1].request
    rig.done(1, after=0.022)
    assert rig.ends() == {"r1": "done"} and rig.told["r1"].output == b"1"
    assert request.started_at is not None and not rig.ended, "nothing of it goes to the store"
    assert rig.d.idle


def test_nothing_of_a_request_is_renewed():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=100.0)
    rig.poll(after=25.0)
    assert not rig.renews


def test_what_cannot_be_done_in_time_any_more_costs_no_replica():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=10.0)
    late = rig.offer(deadline_s=0.100)
    rig.d.hand.basin.reservoirs["t"]  # it waits behind the first
    rig.done(1, after=0.090)
    assert late.end is not None and rig.ends()["r2"] == "late"
    assert len(rig.ran) == 1 and not rig.told["r2"].ran


def test_a_deadline_that_passes_while_it_runs_is_answered_and_nothing_is_killed():
    rig = RequestRig().learn_model()
    rig.ask()
    assert rig.d.wake_at() <= rig.now + 0.2
    rig.poll(after=0.2)
    assert rig.ends() == {"r1": "late"} and rig.told["r1"].ran
    assert not rig.kills and rig.cancels == [(1, 1)], "its handler may see that it is cancelled"
    rig.done(1, after=0.3)
    assert rig.ends() == {"r1": "late"}
    assert rig.ask().end is None and len(rig.ran) == 2


def test_a_run_that_takes_too_long_is_killed_by_its_timeout_all_the_same():
    rig = RequestRig(a_spec(**MODEL, timeout_s=1.0)).learn_model()
    rig.ask()
    rig.poll(after=0.2)
    rig.poll(after=0.9)
    assert rig.kills == [(1, KillReason.TIMEOUT)]


def test_a_run_that_its_timeout_ends_is_answered_so():
    rig = RequestRig(a_spec(**MODEL, timeout_s=1.0)).learn_model()
    rig.ask(deadline_s=10.0)
    rig.poll(after=1.1)
    rig.died(1)
    assert rig.ends() == {"r1": "failed"} and rig.told["r1"].error.code == "timeout"


def test_a_batch_is_as_large_as_its_tightest_member_allows():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=10.0)
    for _ in range(5):
        assert isinstance(rig.offer(deadline_s=10.0), Request)
    assert isinstance(rig.offer(deadline_s=0.053), Request)
    (run,) = rig.done(1, after=0.022)
    assert 1 <= len(run.items) < 6
    assert "r7" in {lease.job.id for _, lease in run.items}


def test_where_more_come_than_can_be_done_small_batches_do_not_beget_small_batches():
    rig = RequestRig().learn_model(fixed_s=0.040, each_s=0.004)
    rig.ask(deadline_s=10.0)
    tight = [rig.offer(deadline_s=0.126) for _ in range(2)]
    others = [rig.offer(deadline_s=0.2) for _ in range(14)]
    assert all(isinstance(one, Request) for one in tight + others)
    rig.d.hand.basin.refused_at["t"] = rig.now
    (run,) = rig.done(1, after=0.044)
    assert len(run.items) == 14
    assert [one.end.value for one in tight] == ["late", "late"]


def test_a_full_batch_is_with_the_child_before_the_running_one_ends():
    rig = RequestRig().learn_model()
    for _ in range(16):
        rig.offer()
    rig.poll()
    for _ in range(15):
        rig.offer()
    assert rig.poll(after=0.0485) == []
    rig.offer()
    (run,) = rig.poll()
    assert len(run.items) == 16
    assert len(rig.d.hand.replicas[1].runs) == 2


def test_the_client_that_hangs_up_costs_no_slot():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=10.0)
    waiting = rig.offer(deadline_s=10.0)
    rig.gone(waiting)
    rig.done(1, after=0.02)
    assert len(rig.ran) == 1 and rig.ends() == {"r2": "gone", "r1": "done"}


def test_the_client_that_hangs_up_while_it_runs_has_its_handler_told():
    rig = RequestRig().learn_model()
    request = rig.ask(deadline_s=10.0)
    rig.gone(request)
    assert rig.cancels == [(1, 1)] and not rig.kills
    rig.done(1, after=0.02)
    assert rig.ends() == {"r1": "gone"} and rig.d.idle


def test_while_the_breaker_of_its_task_is_open_requests_are_refused_and_one_is_the_probe():
    spec = a_spec(**MODEL, breaker=BreakerPolicy(failures=2, rate=None, open_s=5.0))
    rig = RequestRig(spec, guards={"t": Guard(CircuitBreaker(spec.breaker))}).learn_model()
    for _ in range(2):
        rig.ask(deadline_s=10.0)
        rig.done(rig.ran[-1].items[0][0], after=0.02, error=BAD)
    refused = rig.offer(deadline_s=10.0)
    assert refused.reason is Reason.BREAKER_OPEN and 0 < refused.retry_after_s <= 5.0
    rig.now += 5.0
    probe, other = rig.offer(deadline_s=10.0), rig.offer(deadline_s=10.0)
    rig.poll()
    assert [lease.job.id for _, lease in rig.ran[-1].items] == [probe.job.id]
    assert rig.ends()[other.job.id] == "barred"
    rig.done(rig.ran[-1].items[0][0], after=0.02)
    assert isinstance(rig.offer(deadline_s=10.0), Request)


def test_a_probe_whose_caller_hangs_up_frees_its_place():
    spec = a_spec(**MODEL, breaker=BreakerPolicy(failures=1, rate=None, open_s=5.0))
    rig = RequestRig(spec, replicas=2, guards={"t": Guard(CircuitBreaker(spec.breaker))}).learn_model()
    rig.ask(deadline_s=10.0)
    rig.done(rig.ran[-1].items[0][0], after=0.02, error=BAD)
    rig.now += 5.0
    rig.gone(rig.ask(deadline_s=10.0))
    assert isinstance(rig.ask(deadline_s=10.0), Request)
    assert len(rig.ran) == 3


def test_the_answers_of_what_stands_in_say_so():
    breaker = CircuitBreaker(BreakerPolicy(failures=1, rate=None))
    rig = RequestRig(guards={"t": Guard(breaker, guest=True)}).learn_model()
    request = rig.ask()
    rig.done(1, after=0.022)
    assert (rig.ends(), request.level) == ({"r1": "done"}, FALLBACK)


def test_a_handler_that_fails_is_not_asked_again():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=10.0)
    rig.done(1, after=0.02, error=BAD)
    assert rig.ends() == {"r1": "failed"} and rig.told["r1"].error == BAD._replace(attempt=1)
    assert len(rig.ran) == 1 and rig.told["r1"].retry_after_s is None


def test_a_handler_that_asks_for_another_try_is_told_as_a_time():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=10.0)
    rig.done(1, after=0.02, error=JobError("handler_failed", "later", "Retry"), after_s=3.0)
    assert rig.told["r1"].retry_after_s == pytest.approx(3.0)


def test_members_of_a_batch_whose_worker_died_run_again_one_by_one():
    rig = RequestRig(replicas=2).learn_model()
    for _ in range(3):
        rig.offer(deadline_s=10.0)
    rig.poll()
    rig.died(rig.ran[0].replica)
    assert not rig.told
    alone = rig.ran[-1]
    assert len(alone.items) == 1
    rig.done(alone.items[0][0], after=0.022)
    rig.done(rig.ran[-1].items[0][0], after=0.022)
    rig.done(rig.ran[-1].items[0][0], after=0.022)
    assert rig.ends() == {"r1": "done", "r2": "done", "r3": "done"}


def test_a_request_that_kills_two_workers_alone_is_given_up_as_poison():
    rig = RequestRig(replicas=3).learn_model()
    rig.ask(deadline_s=10.0)
    rig.died(rig.ran[-1].replica)
    assert not rig.told
    rig.died(rig.ran[-1].replica)
    assert rig.ends() == {"r1": "failed"} and rig.told["r1"].error.code == CRASH.code


def test_the_deaths_of_a_request_are_charged_to_its_input_and_those_in_company_to_nobodys():
    rig = RequestRig(replicas=3).learn_model()
    first = rig.offer(deadline_s=10.0, payload=b"1")
    rig.offer(deadline_s=10.0, payload=b"2")
    rig.poll()
    rig.died(rig.ran[0].replica)
    assert not rig.charged
    rig.died(rig.ran[-2].replica)
    ((job, charge, at),) = rig.charged
    assert (job, charge.fingerprint, at) == (first.job, fingerprint_of(first.job), rig.now)
    assert charge.condemns_at == 3 and not rig.ended, "nothing else of it goes to the store"


def test_a_request_that_died_and_was_answered_clears_its_input():
    rig = RequestRig(replicas=2).learn_model()
    rig.ask(deadline_s=10.0)
    rig.died(rig.ran[-1].replica)
    rig.done(rig.ran[-1].items[0][0], after=0.022)
    assert rig.ends() == {"r1": "done"} and [charge.condemns_at for _, charge, _ in rig.charged] == [3, 0]


def test_waiting_requests_whose_input_is_in_quarantine_are_told_so_and_run_nowhere():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=10.0, payload=b"busy")
    rig.offer(deadline_s=10.0, payload=b"bad")
    rig.offer(deadline_s=10.0, payload=b"good")
    deadly = DeadlyInput(b"f" * 16, "t", "1", "", 3, "r0", 0.0, rig.now, rig.now)
    answering.bar_waiting(rig.d.hand, lambda job: deadly if job.payload == b"bad" else None)
    (run,) = rig.done(1, after=0.022)
    assert [lease.job.payload for _, lease in run.items] == [b"good"]
    assert rig.ends()["r2"] == "failed" and rig.told["r2"].error.code == "quarantined"


def test_without_time_for_another_try_the_death_is_said_at_once():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=0.03)
    rig.died(1, after=0.02)
    assert rig.ends() == {"r1": "lost"}


def test_a_suspect_whose_deadline_passes_is_told_of_the_death():
    rig = RequestRig().learn_model()
    rig.ask()
    rig.died(1, after=0.02)
    assert not rig.told, "there is time for another try"
    rig.poll(after=0.2)
    assert rig.ends() == {"r1": "lost"}


def test_what_a_child_gives_back_waits_again_in_its_place():
    rig = RequestRig().learn_model()
    for _ in range(2):
        rig.offer(deadline_s=10.0)
    rig.poll()
    tags = [tag for tag, _ in rig.ran[0].items]
    (run,) = rig.returned(*tags)
    assert [lease.job.id for _, lease in run.items] == ["r1", "r2"]
    assert all(lease.attempt == 1 for _, lease in run.items)


def test_a_drain_answers_what_was_let_in():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=10.0)
    rig.offer(deadline_s=10.0)
    rig.d.drain(now=rig.now)
    rig.poll()
    assert not rig.d.idle
    rig.done(1, after=0.02)
    rig.done(rig.ran[-1].items[0][0], after=0.02)
    assert rig.ends() == {"r1": "done", "r2": "done"} and rig.d.idle


def test_when_the_grace_is_over_what_waits_is_told_so():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=10.0)
    rig.offer(deadline_s=10.0)
    answering.close(rig.d.hand)
    rig.note()
    assert rig.ends() == {"r2": "closed"}


def test_jobs_wait_in_hand_for_their_share_and_get_it():
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=1000.0)
    kinds = []
    for _ in range(40):
        while len(rig.d.hand.basin.reservoirs["t"]) < 20:
            rig.offer(deadline_s=1000.0)
        rig.poll()
        if "t" in rig.asked:
            rig.give(rig.jobs(rig.asked["t"]))
        running = rig.d.hand.replicas[1].head()
        kinds.append(running.sent[0][1].request)
        rig.done(*running.items, after=0.052)
    jobs = kinds.count(False)
    assert 2 <= jobs <= 6, "a tenth of forty"


def test_functions_share_their_replicas_by_the_earliest_deadline():
    rig = RequestRig(a_spec("a"), a_spec("b"))
    for task in "ab":
        rig.learn(0.1, task=task)
    rig.ask("a", deadline_s=10.0)
    rig.offer("a", deadline_s=9.0)
    rig.offer("b", deadline_s=8.0)
    rig.done(1, after=0.1)
    assert rig.ran[1].task == "b"


def test_what_a_tenant_holds_is_counted_until_each_has_ended_however_it_ends():
    rig = RequestRig().learn_model()
    basin = rig.d.hand.basin
    assert basin.held_by("a") == Held(0, 0)
    ran = rig.ask(tenant="a", payload=b"12", deadline_s=10.0)
    late = rig.offer(tenant="a", payload=b"345", deadline_s=0.1)
    gone = rig.offer(tenant="a", payload=b"6", deadline_s=10.0)
    rig.offer(tenant="b", payload=b"78", deadline_s=10.0)
    assert (basin.held_by("a"), basin.held_by("b")) == (Held(3, 6), Held(1, 2))
    rig.gone(gone)
    assert basin.held_by("a") == Held(2, 5)
    rig.done(1, after=0.099)
    assert ran.end is not None and late.end is not None and basin.held_by("a") == Held(0, 0)
    answering.close(rig.d.hand)
    rig.done(*list(rig.d.hand.items), after=0.03)
    assert basin.held_by("b") == Held(0, 0)


def ran(replica, hand, *, sent_at, began_at, busy_s, heard_at):
    run = hand.new_run("t", replica, singles=True, alone=False)
    run.sent_at, run.started_at, run.busy_s = sent_at, began_at, busy_s
    replica.heard(run, heard_at)


def test_the_way_to_a_child_is_learned_from_runs_that_did_not_wait_there():
    replica, hand = Replica(1), RequestRig().d.hand
    for _ in range(40):
        ran(replica, hand, sent_at=0.0, began_at=0.0, busy_s=0.010, heard_at=0.018)
    assert replica.way_s == pytest.approx(0.008, rel=0.01)
    for _ in range(40):  # sent long before the one before it ended, and begun as soon as it had
        ran(replica, hand, sent_at=0.0, began_at=0.050, busy_s=0.010, heard_at=0.060)
    assert 0.007 <= replica.way_s <= 0.008


def test_the_next_piece_leaves_as_much_earlier_as_the_way_takes():
    rig = RequestRig().learn_model()
    rig.d.hand.replicas[1].way_s = 0.010
    for _ in range(16):
        rig.offer()
    rig.poll()
    for _ in range(16):
        rig.offer()
    assert rig.poll(after=0.0365) == [], "5 and 10 ms before it is expected to end"
    assert len(rig.poll(after=0.001)) == 1


def test_a_stall_is_not_taken_for_a_long_way():
    replica, hand = Replica(1), RequestRig().d.hand
    ran(replica, hand, sent_at=0.0, began_at=0.0, busy_s=0.002, heard_at=5.0)
    assert 0.0 < replica.way_s <= 0.2 * WAY_MAX_S


@pytest.mark.parametrize(("deviation_s", "runs"), [(0.0, True), (0.012, False)])
def test_a_batch_of_uneven_runs_is_made_of_those_who_will_rather_surely_be_in_time(deviation_s, runs):
    rig = RequestRig().learn_model()
    rig.ask(deadline_s=60.0)
    tight = rig.offer(deadline_s=0.150)
    for _ in range(20):
        rig.offer(deadline_s=60.0)
    rig.d.hand.tasks["t"].fit.deviation_s = deviation_s
    rig.done(1, after=0.090)  # so that a full batch leaves 8 ms
    assert (tight.tag is not None) is runs
    assert len(rig.ran[1].items) == 16, "the others do not pay for it"


def test_where_more_wait_than_can_be_done_a_batch_keeps_some_time_for_the_way_back():
    """They have 56 ms, and sixteen take 52; of their 200 ms 6 are kept free, beside 2 to be written."""
    rig = RequestRig().learn_model()
    for number in range(17):
        job = Job(f"r{number}", "t", b"1", rig.now - 0.144, rig.now, 5, 2, None, rig.now + 0.056)
        rig.d.hand.basin.new(job)
    rig.poll()
    assert len(rig.ran[0].items) == 14
