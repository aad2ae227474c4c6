"""The sender against receivers that do everything wrong; each protection fails here without its code."""

import asyncio
import base64
import json
import socket
import struct
import time

import pytest
from standardwebhooks import Webhook

from forebay.core.delivering import DeliveryPolicy
from forebay.core.outbox import DeliveryState
from forebay.core.retry import RetryPolicy
from forebay.core.signing_keys import PREFIX
from forebay.errors import StoreUnavailableError
from forebay.webhooks import post, sender
from tests.webhooks.receivers import KEY, OK, Post, Receiver, answer, eventually, says

SLOW = DeliveryPolicy(retry=RetryPolicy(base_s=600.0))


def run(story, *, behave=None, **options):
    async def told():
        async with asyncio.timeout(60), Receiver(behave) as receiver, Post(**options) as office:
            return await story(receiver, office)

    return asyncio.run(told())


def test_a_receiver_gets_the_finished_job_once_and_can_verify_it():
    async def story(receiver, office):
        job_id = await office.ended(receiver.url, metadata=b'{"k":"v"}')
        row = await office.settled(job_id)
        assert (row.state, row.tries, row.log[0].status) == (DeliveryState.DELIVERED, 1, 204)
        ((headers, body),) = receiver.requests
        told = Webhook(PREFIX + base64.b64encode(KEY).decode()).verify(body, headers)
        assert (told["job_id"], told["status"], told["result"]) == (job_id, "COMPLETED", "done")
        assert told["metadata"] == {"k": "v"}
        assert told["links"]["deliveries"] == f"/v1/jobs/{job_id}/deliveries"
        assert headers["webhook-id"] == f"msg_{job_id}"
        assert headers["host"] == f"127.0.0.1:{receiver.port}"
        assert office.outcomes == ["delivered"]

    run(story)


def test_a_large_result_is_left_out_and_said_so():
    async def story(receiver, office):
        ids = [await office.ended(receiver.url, output=b'"%b"' % (b"x" * size)) for size in (16382, 16383)]
        for job_id in ids:
            await office.settled(job_id)
        told = {view["job_id"]: view for view in (json.loads(body) for _, body in receiver.requests)}
        assert told[ids[0]]["result"] == "x" * 16382
        assert "result_omitted" not in told[ids[0]]
        assert (told[ids[1]]["result"], told[ids[1]]["result_omitted"]) == (None, True)
        assert told[ids[1]]["links"]["result"] == f"/v1/jobs/{ids[1]}/result"

    run(story)


def test_a_storm_of_500_is_ridden_out_under_one_id_with_fresh_timestamps():
    async def story(receiver, office):
        job_id = await office.ended(receiver.url)
        await eventually(lambda: asyncio.sleep(0, len(receiver.requests) >= 1), "first try")
        office.clock.ahead_s += 3.0
        row = await office.settled(job_id)
        assert row.state is DeliveryState.DELIVERED
        assert [tried.status for tried in row.log] == [500, 503, 204]
        assert {headers["webhook-id"] for headers, _ in receiver.requests} == {f"msg_{job_id}"}
        stamps = [int(headers["webhook-timestamp"]) for headers, _ in receiver.requests]
        assert stamps[-1] >= stamps[0] + 3
        assert office.outcomes == ["retried", "retried", "delivered"]

    run(story, behave=says(answer(500), answer(503), OK))


def test_what_never_works_is_given_up_and_said():
    async def story(receiver, office):
        job_id = await office.ended(receiver.url)
        row = await office.settled(job_id)
        assert row.state is DeliveryState.GIVEN_UP
        assert row.tries >= 3
        assert office.outcomes[-1] == "given_up"
        ((event, told),) = [line for line in office.log.lines if line[0] == "webhook_given_up"]
        assert told["job_id"] == job_id
        assert "s3cret" not in str(office.log.lines)  # the query of a URL may be a password

    run(story, behave=says(answer(500)))


def test_410_is_heard_and_replay_asks_again():
    async def story(receiver, office):
        job_id = await office.ended(receiver.url)
        row = await office.settled(job_id)
        assert (row.state, row.tries) == (DeliveryState.DISABLED, 1)
        await office.broker.outbox.replay(job_id, now=office.clock.now())
        row = await office.settled(job_id)
        assert (row.state, row.tries) == (DeliveryState.DELIVERED, 2)
        assert office.outcomes == ["disabled", "delivered"]

    run(story, behave=says(answer(410), OK))


@pytest.mark.parametrize(
    ("status", "header", "least_s", "most_s"),
    [(429, "Retry-After: 50", 50, 51), (503, "Retry-After: 1000000000", 3599, 3601), (500, "Retry-After: x", 0, 1),
     (503, "Retry-After: -5", 0, 1), (503, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", 0, 1),
     (503, "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", 3599, 3601)],
)  # fmt: skip
def test_a_receiver_may_ask_for_time_within_an_hour(status, header, least_s, most_s):
    async def story(receiver, office):
        job_id = await office.ended(receiver.url)
        await eventually(lambda: asyncio.sleep(0, office.outcomes), "a try")
        row = await office.row(job_id)
        assert least_s <= row.due_at - row.log[0].at <= most_s

    policy = DeliveryPolicy(retry=RetryPolicy(base_s=0.5, cap_s=0.5))
    run(story, behave=says(answer(status, header)), policy=policy, stands=True)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status):
    async def story(receiver, office):
        async with Receiver() as canary:
            receiver.behave = says(answer(status, f"Location: {canary.url}"))
            job_id = await office.ended(receiver.url)
            await eventually(lambda: asyncio.sleep(0, office.outcomes), "a try")
            row = await office.row(job_id)
            assert (row.log[0].status, row.log[0].detail) == (status, "redirects are not followed")
            assert canary.connections == 0

    run(story, policy=SLOW)


async def one_byte_a_turn(_receiver, _reader, writer, _number):
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X-Slow: 1\r\n" * 10_000:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.02)


async def nothing_at_all(_receiver, reader, _writer, _number):
    await reader.read()


async def endless_body(_receiver, _reader, writer, _number):
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        await writer.drain()


async def endless_headers(_receiver, _reader, writer, _number):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-Header: " + b"x" * 4096 + b"\r\n")
        await writer.drain()


async def closes_in_mid_answer(_receiver, _reader, writer, _number):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await writer.drain()
    writer.close()


async def resets(_receiver, _reader, writer, _number):
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def no_http(_receiver, _reader, writer, _number):
    writer.write(b"220 mail.example ESMTP\r\n")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(
    ("behave", "detail"),
    [
        (one_byte_a_turn, "no whole answer within"),
        (nothing_at_all, "no whole answer within"),
        (endless_headers, "no HTTP answer"),
        (closes_in_mid_answer, "the connection broke"),
        (resets, "the connection broke"),
        (no_http, "no HTTP answer"),
    ],
)
@pytest.mark.timed
def test_a_receiver_that_misbehaves_costs_one_bounded_try(behave, detail, monkeypatch):
    monkeypatch.setattr(post, "TOTAL_S", 1.0)

    async def story(receiver, office):
        began = time.monotonic()
        job_id = await office.ended(receiver.url)
        await eventually(lambda: asyncio.sleep(0, office.outcomes), "the end of the try")
        assert time.monotonic() - began < 8.0
        row = await office.row(job_id)
        assert row.state is DeliveryState.WAITING
        assert (row.log[0].status, row.log[0].detail[: len(detail)]) == (None, detail)

    run(story, behave=behave, policy=SLOW)


@pytest.mark.timed
def test_a_giant_answer_is_a_success_that_is_not_read(monkeypatch):
    monkeypatch.setattr(post, "TOTAL_S", 5.0)

    async def story(receiver, office):
        began = time.monotonic()
        for _ in range(3):
            row = await office.settled(await office.ended(receiver.url))
            assert (row.state, row.log[0].status) == (DeliveryState.DELIVERED, 200)
        assert time.monotonic() - began < 4.0
        assert receiver.connections == 3  # none is used again with megabytes left in it

    run(story, behave=endless_body)


async def closes_when_idle(receiver, _reader, writer, number):
    writer.write(OK)
    await writer.drain()
    if number == 1:
        writer.close()


def test_a_connection_that_was_closed_while_idle_costs_no_try():
    async def story(receiver, office):
        await office.settled(await office.ended(receiver.url))
        row = await office.settled(await office.ended(receiver.url))
        assert (row.state, row.tries) == (DeliveryState.DELIVERED, 1)
        assert receiver.connections == 2

    run(story, behave=closes_when_idle, policy=SLOW)


async def ends_by_closing(_receiver, _reader, writer, _number):
    writer.write(b"HTTP/1.0 200 OK\r\n\r\nfine")
    await writer.drain()
    writer.close()


async def goes_on_first(_receiver, _reader, writer, _number):
    writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK)


async def in_single_bytes(_receiver, _reader, writer, _number):
    for byte in answer(201, body=b"made"):
        writer.write(bytes([byte]))
        await writer.drain()


@pytest.mark.parametrize("behave", [ends_by_closing, goes_on_first, in_single_bytes])
def test_odd_but_right_answers_are_understood(behave):
    async def story(receiver, office):
        for _ in range(2):
            row = await office.settled(await office.ended(receiver.url))
            assert (row.state, row.tries) == (DeliveryState.DELIVERED, 1)

    run(story, behave=behave, policy=SLOW)


def test_what_comes_unasked_closes_the_connection():
    async def two_answers(_receiver, _reader, writer, _number):
        writer.write(OK + answer(500))

    async def story(receiver, office):
        for _ in range(3):
            row = await office.settled(await office.ended(receiver.url))
            assert (row.state, row.tries) == (DeliveryState.DELIVERED, 1)

    run(story, behave=two_answers, policy=SLOW)


def test_nobody_listens():
    async def story(receiver, office):
        url = receiver.url
        receiver.server.close()
        await receiver.server.wait_closed()
        job_id = await office.ended(url)
        await eventually(lambda: asyncio.sleep(0, office.outcomes), "a try")
        assert (await office.row(job_id)).log[0].detail.startswith("no connection")

    run(story, policy=SLOW)


@pytest.mark.timed
def test_a_dead_receiver_holds_its_share_and_others_are_told_at_once():
    async def story(receiver, office):
        async with Receiver() as well:
            for _ in range(400):
                await office.ended(receiver.url)
            await eventually(lambda: asyncio.sleep(0, receiver.holding >= 8), "the dead one is busy")
            began = time.monotonic()
            row = await office.settled(await office.ended(well.url))
            assert row.state is DeliveryState.DELIVERED
            assert time.monotonic() - began < 2.0
            assert receiver.holding_max <= sender.ENDPOINT_TRIES_MAX

    run(story, behave=nothing_at_all, policy=SLOW)


def test_a_receiver_that_fails_again_and_again_gets_one_try_at_a_time():
    async def story(receiver, office):
        for _ in range(60):
            await office.ended(receiver.url)
        await eventually(lambda: asyncio.sleep(0, len(office.outcomes) >= 16), "the first tries")
        await eventually(lambda: asyncio.sleep(0, not office.sender._endpoints.in_flight), "they have ended")
        seen, receiver.holding_max = len(receiver.requests), 0
        for more in range(1, 4):
            office.clock.ahead_s += 61.0  # past the longest rest, which begins where the try before has ended
            await eventually(lambda more=more: asyncio.sleep(0, len(receiver.requests) == seen + more), "one")
            await eventually(lambda: asyncio.sleep(0, not office.sender._endpoints.in_flight), "it has ended")
        assert receiver.holding_max == 1

    run(story, behave=says(answer(500)), policy=SLOW)


def test_a_backlog_leaves_in_the_order_of_its_ends_and_keeps_connections():
    async def story(receiver, office):
        ids = [await office.ended(receiver.url) for _ in range(200)]
        for job_id in ids:
            await office.settled(job_id)
        assert len(receiver.requests) == 200
        assert receiver.connections <= 2 * sender.ENDPOINT_TRIES_MAX

    run(story)


def test_a_clock_that_jumps_a_month_gives_nothing_up():
    async def story(receiver, office):
        job_id = await office.ended(receiver.url)
        await eventually(lambda: asyncio.sleep(0, len(office.outcomes) >= 1), "first try")
        office.clock.ahead_s += 20 * 3600.0
        row = await office.settled(job_id)
        assert row.state is DeliveryState.DELIVERED

    policy = DeliveryPolicy(retry=RetryPolicy(base_s=0.02, cap_s=0.05), window_s=3600.0)
    run(story, behave=says(answer(500), answer(500), OK), policy=policy)


def test_a_job_past_its_retention_is_given_up():
    async def story(receiver, office):
        job_id = await office.ended(receiver.url)
        await eventually(lambda: asyncio.sleep(0, len(office.outcomes) >= 1), "first try")
        office.clock.ahead_s += 10 * 86_400.0
        await eventually(lambda: asyncio.sleep(0, office.outcomes[-1] == "given_up"), "given up")
        assert len(receiver.requests) == 1
        assert await office.row(job_id) is None

    run(story, behave=says(answer(500)), policy=SLOW)


def test_a_try_cut_by_a_stop_is_made_again_by_the_next_sender():
    async def story(receiver, office):
        job_id = await office.ended(receiver.url)
        await eventually(lambda: asyncio.sleep(0, receiver.holding), "on its way")
        await office.sender.close(within_s=0.0)
        assert (await office.row(job_id)).state is DeliveryState.SENDING
        receiver.behave = None
        office.broker._ledger.recover(now=office.clock.now())  # what an opening does
        async with Post(broker=office.broker) as again:
            row = await again.settled(job_id)
        assert (row.state, row.tries) == (DeliveryState.DELIVERED, 2)
        assert {headers["webhook-id"] for headers, _ in receiver.requests} == {f"msg_{job_id}"}

    run(story, behave=nothing_at_all)


def test_a_stop_lets_tries_on_their_way_end():
    async def story(receiver, office):
        job_id = await office.ended(receiver.url)
        await eventually(lambda: asyncio.sleep(0, receiver.holding), "on its way")
        await office.sender.close(within_s=10.0)
        assert (await office.row(job_id)).state is DeliveryState.DELIVERED

    async def soon(_receiver, _reader, writer, _number):
        await asyncio.sleep(0.3)
        writer.write(OK)

    run(story, behave=soon)


def test_a_sender_that_stands_still_or_ended_is_not_ready():
    async def story(_receiver, office):
        assert office.sender.unready_reason() is None
        office.clock.ahead_s += 60.0
        assert "stands still" in office.sender.unready_reason()
        await eventually(lambda: asyncio.sleep(0, office.sender.unready_reason() is None), "it turns again")
        office.sender._loop.cancel()
        await eventually(lambda: asyncio.sleep(0, office.sender.unready_reason()), "seen to have ended")

    run(story)


def test_a_store_that_fails_for_a_while_is_waited_out(monkeypatch):
    monkeypatch.setattr(sender, "FAILURE_WAIT_S", 0.01)

    async def story(receiver, office):
        claim, failures = office.broker.outbox.claim, []

        async def failing(**asked):
            if len(failures) < 3:
                failures.append(1)
                raise StoreUnavailableError
            return await claim(**asked)

        office.broker.outbox.claim = failing
        row = await office.settled(await office.ended(receiver.url))
        assert row.state is DeliveryState.DELIVERED
        assert len(failures) == 3

    run(story)
