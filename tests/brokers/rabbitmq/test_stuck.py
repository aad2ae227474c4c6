"""A quorum queue that answers nobody though the server does: noticed, said in one line, done without, made anew."""

import asyncio

import pytest

from forebay.brokers.rabbitmq import RabbitTransport, mending
from forebay.errors import DeliveryUnavailableError
from tests.brokers.rabbitmq.test_relay import relayed
from tests.brokers.relay.test_relay import Worker, clock, submit, until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]
NOTICED_MAX_S = 20.0  # 6 s where the machine has time
MENDED_MAX_S = 60.0


def stop(rabbit, queue):
    """End who answers for a queue, as a server that was killed right after making it leaves it."""
    told = rabbit.ctl("eval", f"ra:stop_server(quorum_queues, {{'%2F_{queue}', node()}}).")
    assert told.strip() == "ok", told


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_a_queue_that_answers_nobody_is_told_done_without_and_made_anew(server, rabbit, monkeypatch):
    monkeypatch.setattr(mending, "STUCK_MAX_S", 1.0)
    said = []

    async def body(api, node):
        worker = Worker(node)
        jobs = await submit(api, 20)
        await until(lambda: len(worker.done) == 20 and node.told().events["received"], node.told)
        await asyncio.to_thread(stop, rabbit, "stuck.echo")
        began = clock.now()
        jobs += await submit(api, 20)
        await until(lambda: len(worker.done) == 40, node.told)
        await until(lambda: not api.told().up, api.told)
        assert clock.now() - began < NOTICED_MAX_S
        assert "the queue 'stuck.echo' cannot be used, though the server can" in str(said[0])
        assert "\n" not in str(said[0])
        while not (api.told().up and node.told().up):
            assert clock.now() - began < MENDED_MAX_S, (api.told(), node.told())
            jobs += await submit(api, 1)
            await asyncio.sleep(0.2)
        received = node.told().events["received"]
        jobs += await submit(api, 20)
        await until(lambda: len(worker.done) == len(jobs), node.told)
        await until(lambda: node.told().events["received"] > received, node.told)
        assert sorted(worker.begun) == sorted(worker.done) == sorted(jobs), "each once"
        await worker.stop()

    relayed(server, rabbit, body, name="stuck", prefix="stuck", on_down=said.append)


def test_a_queue_of_dead_letters_that_answers_nobody_is_told_and_left(rabbit, monkeypatch):
    monkeypatch.setattr(mending, "STUCK_MAX_S", 0.0)

    async def run():
        transport = await RabbitTransport.open(rabbit.url(prefix="stuckdead"))
        try:
            await transport.bury("echo", [b"dead"])
            await asyncio.to_thread(stop, rabbit, "stuckdead:dead.echo")
            with pytest.raises(
                DeliveryUnavailableError, match="'stuckdead:dead.echo' cannot be us"
            ) as caught:
                await transport.bury("echo", [b"dead"])
            assert "removed" not in str(caught.value) and not transport._mending._ops
            await transport.forget("echo")
        finally:
            await transport.close()

    asyncio.run(run())
