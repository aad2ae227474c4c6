"""Plans, driven by hand: the steps a verb takes, with replies and a clock that the test makes up."""

import json

import pytest

from forebay.client import blobs, bulk, plans, wire
from forebay.client.encode import Options
from forebay.client.faults import JobFailedError
from forebay.client.plans import Terms
from forebay.client.wire import Answer, Lost, Pause
from forebay.errors import ForebayError, InfeasibleError, NotFinishedError, QuarantinedError, QueueFullError


class Hand:
    """Drives a plan against scripted replies; time moves only by the pauses, and by `took_s` a call."""

    def __init__(self, replies, took_s=0.0, **terms):
        self.now, self.took_s, self.replies, self.calls, self.pauses = 0.0, took_s, list(replies), [], []
        self.terms = Terms(lambda: self.now, lambda: 0.5, **terms)

    def run(self, plan):
        reply = None
        try:
            while True:
                step = plan.send(reply)
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                    reply = None
                else:
                    self.calls.append(step)
                    self.now += self.took_s
                    reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        except StopIteration as end:
            return end.value


def ok(value, status=200):
    return Answer(status, {"content-type": "application/json"}, json.dumps(value).encode())


def full(after_s):
    return Answer(
        429, {"retry-after": "99"}, json.dumps({"code": "queue_full", "retry_after_s": after_s}).encode()
    )


def test_a_refused_submit_comes_back_not_before_it_was_told():
    hand = Hand([full(7.25), ok({"job_id": "a"}, 202)])
    assert hand.run(plans.ask(wire.submit_call(b"{}", "k"), hand.terms))["job_id"] == "a"
    assert 7.25 <= hand.pauses[0] <= 7.25 + 2.0
    assert [dict(call.headers)["idempotency-key"] for call in hand.calls] == ["k", "k"]


def test_trying_ends_with_the_last_refusal():
    hand = Hand([full(0.5)], retry_for_s=5.0)
    with pytest.raises(QueueFullError):
        hand.run(plans.ask(wire.submit_call(b"{}", "k"), hand.terms))
    assert hand.now <= 5.0 + 1e-9 and len(hand.calls) >= 5


@pytest.mark.parametrize(
    ("kind", "status", "members"),
    [
        (InfeasibleError, 429, {"ttl_needed_s": 9.5, "earliest_p50_at": "2027-01-15T08:00:00Z"}),
        (QuarantinedError, 422, {"fingerprint": "ab" * 16, "deaths": 3}),
    ],
)
def test_a_refusal_is_raised_as_its_own_kind_with_all_that_the_server_said(kind, status, members):
    problem = {"type": "urn:x", "title": "No", "status": status, "detail": "no", "code": kind.code, **members}
    hand = Hand([Answer(status, {}, json.dumps(problem).encode())], retry_for_s=0.0)
    with pytest.raises(ForebayError) as caught:
        hand.run(plans.ask(wire.submit_call(b"{}", "k"), hand.terms))
    assert type(caught.value) is kind and str(caught.value) == "no"
    assert caught.value.members == members


def test_a_redrive_whose_answer_was_lost_is_repeated_and_names_the_job_of_the_first():
    hand = Hand([Lost("reset", sent=True), ok({"job_id": "a", "redriven_as": "b", "replayed": True})])
    answer = hand.run(plans.ask(wire.dead_letter_call("POST", "a", "/redrive"), hand.terms))
    assert answer["redriven_as"] == "b" and len(hand.calls) == 2


def test_waiting_survives_a_server_that_is_away_for_less_than_retry_for():
    away = [Lost("refused", sent=False)] * 20
    done = {"job_id": "a", "status": "COMPLETED", "result": 5}
    hand = Hand([ok({"job_id": "a", "status": "PENDING"}), *away, ok(done)], retry_for_s=60.0)
    assert hand.run(plans.result("a", 300.0, hand.terms)) == 5


def test_waiting_ends_in_time_and_does_not_spin_on_a_server_that_answers_at_once():
    hand = Hand([ok({"job_id": "a", "status": "PENDING", "state": "queued"})])
    with pytest.raises(NotFinishedError):
        hand.run(plans.result("a", 30.0, hand.terms))
    assert hand.now == pytest.approx(30.0, abs=0.01)
    assert len(hand.calls) <= 40


def test_a_failed_job_says_why():
    view = {
        "job_id": "a",
        "status": "FAILED",
        "error": {"code": "poison", "message": "it killed two children"},
    }
    hand = Hand([ok(view)])
    with pytest.raises(JobFailedError) as caught:
        hand.run(plans.result("a", 1.0, hand.terms))
    assert (caught.value.code, caught.value.message) == ("poison", "it killed two children")


@pytest.mark.parametrize("inline", [None, {"$blob": "b1"}])
def test_a_result_that_is_not_inline_is_fetched(inline):
    view = {"job_id": "a", "status": "COMPLETED", "result": inline}
    hand = Hand([ok(view), Answer(200, {"content-type": "image/png"}, b"\x89PNG")])
    assert hand.run(plans.result("a", 1.0, hand.terms)) == b"\x89PNG"
    assert hand.calls[-1].path == "/v1/jobs/a/result"


def lines(count, size=10):
    return [bulk.Line(n, b"x" * size) for n in range(1, count + 1)]


def verdicts(*rows):
    return Answer(200, {}, b"\n".join(json.dumps(row).encode() for row in rows))


def test_a_pressed_line_goes_again_alone_and_verdicts_keep_their_order():
    pressed = {"line": 2, "status": 429, "code": "queue_full", "retry_after_s": 3.0}
    hand = Hand(
        [
            verdicts(
                {"line": 1, "status": 202, "job_id": "a"},
                pressed,
                {"line": 3, "status": 422, "code": "invalid"},
            ),
            verdicts({"line": 1, "status": 202, "job_id": "b"}),
        ]
    )
    found = hand.run(bulk.submit_all(lines(3), hand.terms))
    assert [(v.line, v.job_id, v.error and v.error.code) for v in found] == [
        (1, "a", None),
        (2, "b", None),
        (3, None, "invalid"),
    ]
    assert hand.pauses[0] >= 3.0
    assert len(hand.calls[1].body.splitlines()) == 1


def test_a_line_that_is_pressed_back_for_too_long_has_that_as_its_verdict():
    hand = Hand([verdicts({"line": 1, "status": 429, "code": "queue_full"})], retry_for_s=5.0)
    (found,) = hand.run(bulk.submit_all(lines(1), hand.terms))
    assert isinstance(found.error, QueueFullError)
    assert hand.now <= 5.0


def test_chunks_keep_both_bounds():
    taken = verdicts(*({"line": n, "status": 202, "job_id": "a"} for n in range(1, 501)))
    for count, size, calls in ((1200, 10, [500, 500, 200]), (4, 300_000, [1, 1, 1, 1])):
        hand = Hand([taken])
        assert len(hand.run(bulk.submit_all(lines(count, size), hand.terms))) == count
        assert [len(call.body.splitlines()) for call in hand.calls] == calls


def test_of_many_payloads_large_ones_are_uploaded_and_a_bad_one_is_a_verdict():
    stored = {"id": "b1", "size": 1, "sha256": "00", "media_type": "application/json"}
    taken = verdicts(*({"line": n, "status": 202, "job_id": f"j{n}"} for n in (1, 2)))
    hand = Hand([ok(stored, 201), taken])
    payloads = ["small", float("nan"), "x" * (blobs.PAYLOAD_INLINE_MAX_B + 1)]
    found = hand.run(bulk.submit_payloads("echo", payloads, Options(), hand.terms))
    assert [(v.line, v.job_id, v.error and v.error.code) for v in found] == [
        (1, "j1", None),
        (2, None, "invalid"),
        (3, "j2", None),
    ]
    assert [(call.method, call.path) for call in hand.calls] == [("PUT", "/v1/blobs"), ("POST", "/v1/jobs")]
    sent = [json.loads(row)["payload"] for row in hand.calls[1].body.splitlines()]
    assert sent == ["small", {"$blob": "b1"}]


def test_of_many_payloads_what_is_left_when_the_server_goes_is_told_and_not_tried():
    taken = verdicts(*({"line": n, "status": 202, "job_id": "a"} for n in range(1, 501)))
    hand = Hand([taken, Lost("refused", sent=False)], retry_for_s=1.0)
    payloads = [*range(501), "x" * (blobs.PAYLOAD_INLINE_MAX_B + 1), 7]
    found = hand.run(bulk.submit_payloads("echo", payloads, Options(), hand.terms))
    assert [v.line for v in found] == list(range(1, 504))
    assert {v.error and v.error.code for v in found[:500]} == {None}
    assert {v.error.code for v in found[500:]} == {"unreachable"}


def test_headroom_is_waited_for_by_long_polls_to_the_end_of_the_time():
    full, free = ok({"has_room": False}), ok({"has_room": True})
    hand = Hand([full, full, free], took_s=19.0)
    assert hand.run(plans.headroom("a b", 200, 300.0, hand.terms)) is True
    assert [call.path for call in hand.calls] == ["/v1/queues/a%20b/headroom"] * 3
    assert dict(hand.calls[0].params) == {"jobs": "200", "wait": "20.000"} and hand.pauses == []
    hand = Hand([full])  # a server that holds nobody back is not asked without a pause
    assert hand.run(plans.headroom("a", 200, 30.0, hand.terms)) is False
    assert hand.now == pytest.approx(30.0) and len(hand.calls) <= 40


def test_a_chunk_that_the_server_finds_too_large_is_halved():
    big = Answer(413, {}, b'{"code": "too_large"}')
    one = verdicts({"line": 1, "status": 202, "job_id": "a"})
    hand = Hand([big, one, one])
    assert [v.job_id for v in hand.run(bulk.submit_all(lines(2), hand.terms))] == ["a", "a"]
