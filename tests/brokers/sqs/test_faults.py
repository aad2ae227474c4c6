"""What Amazon's SQS does to whoever uses it: refuses parts, throttles, is late, gives twice, loses queues."""

import asyncio
import contextlib
import json
import threading

import pytest

from forebay.brokers.sqs import SqsTransport
from forebay.brokers.sqs.calls import Bounds
from forebay.brokers.sqs.inbox import Receipt
from forebay.clock import SystemClock
from forebay.conformance.hinting import bodies, none_left, received, same
from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import Hint
from tests.brokers.sqs.gate import Gate, Refusal
from tests.brokers.sqs.server import MotoServer

pytestmark = pytest.mark.engines
SOON = Bounds(pause_min_s=0.01, away_min_s=0.01, away_max_s=0.02)


class MovedClock(SystemClock):
    """Real time, and what is added to it by hand. Does not sleep: it adds."""

    def __init__(self):
        super().__init__()
        self.added_s = 0.0

    def now(self):
        return super().now() + self.added_s

    async def sleep(self, seconds):
        self.added_s += seconds
        await super().sleep(0)


def drive(gate, prefix, run, *, bounds=SOON, clock=None):
    async def main():
        transport = await SqsTransport.open(gate.url(prefix), clock=clock or SystemClock(), bounds=bounds)
        try:
            await run(transport)
        finally:
            await transport.close()

    asyncio.run(main())


def test_ten_go_in_a_call_and_what_jobs_cost_is_counted_by_verb(gate, prefix):
    async def run(transport):
        await transport.send("echo", bodies(1))
        await transport.ack("echo", await received(transport, "echo", 1))
        before = dict(transport.requests)
        await transport.send("echo", bodies(40))
        hints = await transport.receive("echo", limit=40, wait_s=5.0)
        await transport.ack("echo", hints)
        same(hints, bodies(40), "what one receive returned")
        spent = {verb: n - before.get(verb, 0) for verb, n in transport.requests.items()}
        assert spent["SendMessageBatch"] == spent["DeleteMessageBatch"] == 4
        assert spent["ReceiveMessage"] in (4, 5)
        assert sum(spent.values()) <= 13  # of 40 hints
        assert dict(transport.requests) == dict(gate.count)

    drive(gate, prefix, run)


def test_long_polls_of_many_tasks_keep_no_other_call_waiting(gate, prefix, monkeypatch):
    monkeypatch.setattr("forebay.brokers.sqs.calls.CONNECTIONS_MAX", 4)
    monkeypatch.setattr("forebay.brokers.sqs.calls.CALLS_MAX", 2)

    async def run(transport):
        tasks = [f"task{n}" for n in range(6)]
        polls = [asyncio.ensure_future(transport.receive(task, limit=1, wait_s=20.0)) for task in tasks]
        while gate.count["ReceiveMessage"] < 2:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10.0):  # half of a poll
            await transport.send("other", bodies(1))
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)

    drive(gate, prefix, run, bounds=SOON._replace(tries_max=1, answer_max_s=2.0))


def test_a_queue_keeps_hints_as_long_as_it_can_and_names_its_dead_letters(gate, prefix):
    async def run(transport):
        await transport.send("echo", bodies(1))
        await transport.bury("echo", [b"dead one"])
        made = {what["QueueName"]: what["Attributes"] for verb, what in gate.calls if verb == "CreateQueue"}
        assert set(made) == {f"{prefix}-task-echo", f"{prefix}-dead-echo"}
        assert all(one["MessageRetentionPeriod"] == "1209600" for one in made.values())
        policy = json.loads(made[f"{prefix}-task-echo"]["RedrivePolicy"])
        assert policy["deadLetterTargetArn"].endswith(f":{prefix}-dead-echo")
        url = gate.forward("GetQueueUrl", {"QueueName": f"{prefix}-dead-echo"})["QueueUrl"]
        there = gate.forward("ReceiveMessage", {"QueueUrl": url})["Messages"]
        assert [one["Body"] for one in there] == ["dead one"]
        assert await transport.depth("echo") == 1

    drive(gate, prefix, run)


def test_a_queue_that_somebody_made_is_used_as_it_is(gate, prefix):
    gate.forward(
        "CreateQueue", {"QueueName": f"{prefix}-task-echo", "Attributes": {"VisibilityTimeout": "7"}}
    )

    async def run(transport):
        await transport.send("echo", bodies(1))
        same(await received(transport, "echo", 1), bodies(1), "what came")
        assert not gate.count["CreateQueue"] and not gate.count["SetQueueAttributes"]

    drive(gate, prefix, run)


@pytest.mark.parametrize(
    "status,code", [(500, "InternalError"), (503, "ServiceUnavailable"), (400, "RequestThrottled"), (429, "")]
)
def test_what_passes_is_tried_again(gate, prefix, status, code):
    async def run(transport):
        gate.fail("SendMessageBatch", code, status=status, times=2)
        gate.fail("ReceiveMessage", code, status=status, times=2)
        await transport.send("echo", bodies(3))
        hints = await received(transport, "echo", 3)
        gate.fail("DeleteMessageBatch", code, status=status, times=2)
        await transport.ack("echo", hints)
        assert await transport.depth("echo") == 0
        assert gate.count["SendMessageBatch"] == 3

    drive(gate, prefix, run)


def test_what_does_not_pass_is_told_after_four_tries_and_then_at_once_until_one_call_gets_through(
    gate, prefix
):
    clock = MovedClock()

    async def run(transport):
        await transport.depth("echo")
        gate.fail("SendMessageBatch", "ThrottlingException", times=5)
        with pytest.raises(DeliveryUnavailableError, match="ThrottlingException") as told:
            await transport.send("echo", bodies(1))
        assert told.value.retry_after_s >= 1.0 and gate.count["SendMessageBatch"] == 4
        for verb in (transport.send("echo", bodies(1)), transport.depth("echo")):
            with pytest.raises(DeliveryUnavailableError, match="ThrottlingException"):
                await verb
        assert gate.count["SendMessageBatch"] == 4, "nothing is sent while it is away"
        clock.added_s += 1.0
        with pytest.raises(DeliveryUnavailableError):
            await transport.send("echo", bodies(1))
        assert gate.count["SendMessageBatch"] == 5, "one call looks whether it is back"
        clock.added_s += 2.0
        await transport.send("echo", bodies(1))

    drive(gate, prefix, run, bounds=Bounds(away_min_s=1.0, away_max_s=1.0), clock=clock)


def test_a_service_that_is_late_is_unavailable_within_a_bound(gate, prefix):
    late = threading.Event()

    async def run(transport):
        await transport.depth("echo")
        gate.faults.append(lambda verb, what: late.wait(30.0) and None)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(DeliveryUnavailableError, match="did not answer in time"):
            await transport.send("echo", bodies(1))
        assert loop.time() - began < 10.0
        late.set()

    drive(gate, prefix, run, bounds=Bounds(answer_max_s=0.3, call_max_s=1.0))


def test_entries_that_failed_are_sent_again_and_no_others(gate, prefix):
    async def run(transport):
        gate.fail_entries("SendMessageBatch", "InternalError", which=lambda n: n % 2, times=2)
        await transport.send("echo", bodies(10))
        sizes = [len(what["Entries"]) for verb, what in gate.calls if verb == "SendMessageBatch"]
        assert sizes == [10, 5, 2]
        hints = await received(transport, "echo", 10)
        gate.fail_entries("DeleteMessageBatch", "InternalError", which=lambda n: n == 3)
        await transport.ack("echo", hints)
        assert await transport.depth("echo") == 0

    drive(gate, prefix, run)


def test_entries_that_keep_failing_are_told_and_so_are_those_that_are_our_fault_at_once(gate, prefix):
    async def run(transport):
        gate.fail_entries("SendMessageBatch", "InternalError", which=lambda n: n == 0, times=4)
        with pytest.raises(DeliveryUnavailableError, match="1 entries: InternalError planted"):
            await transport.send("echo", bodies(3))
        calls = gate.count["SendMessageBatch"]
        gate.fail_entries(
            "SendMessageBatch", "InvalidMessageContents", which=lambda n: n == 0, fault_of_sender=True
        )
        with pytest.raises(
            DeliveryUnavailableError, match="1 of 3 hints are refused: InvalidMessageContents"
        ):
            await transport.send("echo", bodies(3))
        assert gate.count["SendMessageBatch"] == calls + 1

    drive(gate, prefix, run)


def test_a_body_that_no_queue_takes_is_told_and_not_tried_again(gate, prefix):
    async def run(transport):
        with pytest.raises(DeliveryUnavailableError, match="SendMessageBatch is refused"):
            await transport.send("echo", [b"x" * 200_000])
        assert gate.count["SendMessageBatch"] == 1

    drive(gate, prefix, run)


def test_what_comes_twice_and_out_of_order_is_handed_on_and_acknowledged(gate, prefix):
    def twice_backwards(verb, what, answer):
        if verb == "ReceiveMessage" and answer.get("Messages"):
            answer["Messages"] = [*reversed(answer["Messages"]), answer["Messages"][0]]

    gate.after.append(twice_backwards)

    async def run(transport):
        await transport.send("echo", bodies(6))
        hints = await received(transport, "echo", 6, limit=10)
        same(hints, bodies(6), "what came")
        assert len(hints) > 6
        await transport.ack("echo", hints)
        await transport.ack("echo", hints)  # not held any more: in silence
        await none_left(transport, "echo")

    drive(gate, prefix, run)


def test_a_hint_whose_hold_is_over_comes_again_and_its_old_receipt_is_passed_over(gate, prefix):
    async def run(transport):
        await transport.send("echo", bodies(1))
        old = await received(transport, "echo", 1)
        again = await received(transport, "echo", 1)
        await transport.ack("echo", again)
        await transport.ack("echo", old)
        await transport.give_back("echo", old, delay_s=0.0)
        await none_left(transport, "echo")

    drive(gate, prefix, run, bounds=SOON._replace(hold_s=3))


def test_receipts_that_are_none_are_passed_over(gate, prefix):
    async def run(transport):
        await transport.send("echo", bodies(1))
        made_up = [Hint(b"x", None), Hint(b"x", Receipt("made up", 0.0))]
        await transport.ack("echo", made_up)
        await transport.give_back("echo", made_up, delay_s=1.0)
        assert await transport.depth("echo") == 1

    drive(gate, prefix, run)


def test_a_hold_is_never_made_longer_than_twelve_hours_from_the_receive(gate, prefix):
    clock = MovedClock()

    async def run(transport):
        await transport.send("echo", bodies(1))
        hints = await received(transport, "echo", 1)
        clock.added_s = gate.now_s = 11 * 3600 + 59 * 60
        await transport.give_back("echo", hints, delay_s=12 * 3600)
        ((_, what),) = [call for call in gate.calls if call[0] == "ChangeMessageVisibilityBatch"]
        assert 0 <= what["Entries"][0]["VisibilityTimeout"] <= 60

    drive(gate, prefix, run, clock=clock)


def test_as_many_as_may_be_in_flight_is_told_as_such(gate, prefix):
    async def run(transport):
        await transport.send("echo", bodies(5))
        await received(transport, "echo", 5)
        gate.in_flight_max = 5
        with pytest.raises(DeliveryUnavailableError, match="as many hints are held as the service allows"):
            await transport.receive("echo", limit=1, wait_s=0.0)

    drive(gate, prefix, run)


def test_what_somebody_else_puts_into_a_queue_is_bytes_for_the_reader_of_hints(gate, prefix):
    async def run(transport):
        await transport.send("echo", bodies(1))
        url = gate.forward("GetQueueUrl", {"QueueName": f"{prefix}-task-echo"})["QueueUrl"]
        for text in ("b64:%%%", "\U0001f980", "x" * 4096, "{}"):
            gate.forward("SendMessage", {"QueueUrl": url, "MessageBody": text})
        hints = await received(transport, "echo", 5)
        assert {hint.body for hint in hints} == {
            b"hint 0",
            b"b64:%%%",
            "\U0001f980".encode(),
            b"x" * 1001,
            b"{}",
        }
        await transport.ack("echo", hints)
        with pytest.raises(Refusal):
            gate.forward("SendMessage", {"QueueUrl": url, "MessageBody": "x" * 4097})  # larger than any hint

    drive(gate, prefix, run)


def test_answers_that_are_no_answers_are_failures_of_the_service(gate, prefix):
    async def run(transport):
        await transport.depth("echo")
        gate.faults.append(lambda verb, what: ["not", "an", "object"] if verb == "SendMessageBatch" else None)
        with pytest.raises(DeliveryUnavailableError, match="SendMessageBatch failed"):
            await transport.send("echo", bodies(1))

    drive(gate, prefix, run)


def test_a_queue_that_was_deleted_is_made_again_when_its_name_is_free(gate, prefix):
    clock = MovedClock()
    sleep = clock.sleep

    async def both(seconds):
        gate.now_s += seconds
        await sleep(seconds)

    clock.sleep = both

    async def run(transport):
        await transport.send("echo", bodies(1))
        await transport.forget("echo")
        with pytest.raises(DeliveryUnavailableError, match="was deleted less than 60 s ago") as told:
            await transport.send("echo", bodies(1))
        assert told.value.retry_after_s == 60.0
        gate.now_s += 60.0
        await transport.send("echo", bodies(2))
        same(await received(transport, "echo", 2), bodies(2), "what came")

    drive(gate, prefix, run, clock=clock)


def test_queues_that_vanish_while_hints_are_held_hurt_nobody(gate, prefix):
    async def run(transport):
        gate.deleted_s = 0.0
        await transport.send("echo", bodies(2))
        hints = await received(transport, "echo", 2)
        for kind in ("task", "dead"):
            url = gate.forward("GetQueueUrl", {"QueueName": f"{prefix}-{kind}-echo"})["QueueUrl"]
            gate.forward("DeleteQueue", {"QueueUrl": url})
        await transport.ack("echo", hints[:1])
        await transport.give_back("echo", hints[1:], delay_s=0.0)
        await transport.bury("echo", [b"dead"])
        await transport.send("echo", bodies(1, start=5))
        same(await received(transport, "echo", 1), bodies(1, start=5), "what came")

    drive(gate, prefix, run)


def test_a_service_that_was_away_and_lost_everything_is_used_like_a_new_one(prefix):
    moto = MotoServer().start()

    async def run(transport):
        await transport.send("echo", bodies(3))
        hints = await received(transport, "echo", 3)
        await transport.bury("echo", [b"dead"])
        moto.halt()
        with pytest.raises(DeliveryUnavailableError):
            await transport.send("echo", bodies(1))
        moto.start()  # it kept all in memory
        await transport._clock.sleep(1.0)
        await transport.ack("echo", hints)
        await transport.send("echo", bodies(1, start=7))
        same(await received(transport, "echo", 1), bodies(1, start=7), "what came")
        await transport.bury("echo", [b"dead"])
        assert await transport.depth("echo") == 1

    try:
        with Gate(moto.port) as gate:
            drive(gate, prefix, run, clock=MovedClock())
    finally:
        moto.stop()


def test_two_that_make_a_queue_at_once_and_differently_both_use_it(gate, prefix):
    def first(verb, what):
        if verb == "CreateQueue" and "task" in what["QueueName"]:
            with contextlib.suppress(Refusal):
                gate.forward(
                    "CreateQueue", {"QueueName": what["QueueName"], "Attributes": {"VisibilityTimeout": "9"}}
                )

    gate.faults.append(first)

    async def run(transport):
        await transport.send("echo", bodies(1))
        same(await received(transport, "echo", 1), bodies(1), "what came")

    drive(gate, prefix, run)


def test_what_comes_for_a_receiver_that_is_gone_is_given_back_for_others(gate, prefix):
    async def run(transport):
        await transport.receive("echo", limit=1, wait_s=0.0)
        waiting = asyncio.ensure_future(transport.receive("echo", limit=1, wait_s=20.0))
        other = await SqsTransport.open(gate.url(prefix), clock=SystemClock())
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await other.send("echo", bodies(1))
        same(await received(other, "echo", 1), bodies(1), "what the other got")
        await other.close()

    drive(gate, prefix, run)


def test_a_service_that_stands_still_does_not_keep_a_process_from_its_end(gate, prefix):
    late = threading.Event()

    async def run(transport):
        await transport.send("echo", bodies(1))
        await received(transport, "echo", 1)
        waiting = asyncio.ensure_future(transport.receive("echo", limit=1, wait_s=20.0))
        await transport.depth("echo")
        gate.faults.append(lambda verb, what: late.wait(30.0) and None)
        async with asyncio.timeout(10.0):
            await transport.close()
        late.set()
        with pytest.raises(DeliveryUnavailableError):
            await waiting

    drive(gate, prefix, run, bounds=SOON._replace(close_max_s=0.5))
