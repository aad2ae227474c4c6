"""A storm of retries against a real server does not outlive its trigger.

Callers ask for half of what the service can do and try again until they are answered or give up: once a second, with
no budget for retries and whatever they are told. In virtual time, with and without a budget: tests/sim/test_metastable.py.
"""

import asyncio
import contextlib
import http.client
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import forebay
from tests.e2e.harness import Served

pytestmark = [pytest.mark.slow, pytest.mark.timed, pytest.mark.timeout(240)]
RATE_PER_S, TIMEOUT_S = 20.0, 2.0  # of 40 a second
STALL_S = 6.0
RECOVERY_MAX_S = 60.0
PLAIN_WAIT_S = 40.0  # longer than Forebay needs


class Callers:
    """Callers who come at a rate; each is answered, gives up, or is still trying."""

    def __init__(self, call):
        self.call = call
        self.came = []  # [when it came, when it was answered or None]
        self.tasks = set()

    async def run(self, rate_per_s, done):
        """Let them come until `done` says so, on time however late this process is."""
        began, number = time.monotonic(), 0
        while not done():
            number += 1
            await asyncio.sleep(max(0.0, began + number / rate_per_s - time.monotonic()))
            task = asyncio.create_task(self._one())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _one(self):
        row = [time.monotonic(), None]
        self.came.append(row)
        try:
            await self.call()
        except forebay.ForebayError:
            return
        row[1] = time.monotonic()

    def at_once(self, last_s=2.0):
        """Return the share of those who came of late that were answered within the time of one try; those who
        came within that time are not judged yet."""
        now = time.monotonic()
        judged = [row for row in self.came if last_s + TIMEOUT_S > now - row[0] > TIMEOUT_S]
        return sum(row[1] is not None and row[1] - row[0] <= TIMEOUT_S for row in judged) / max(
            1, len(judged)
        )

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def through_a_stall(callers, trigger, *, waits_s):
    """Have callers come, pull the trigger, and return in how long after it had gone nearly all were answered at
    once again; None when not within `waits_s`."""
    state = {"done": False}
    coming = asyncio.create_task(callers.run(RATE_PER_S, lambda: state["done"]))

    async def reached(is_so, most_s):
        began = time.monotonic()
        while time.monotonic() - began < most_s:
            if len(callers.came) > 3 * TIMEOUT_S * RATE_PER_S and is_so():
                return time.monotonic() - began
            await asyncio.sleep(0.1)
        return None

    try:
        assert await reached(lambda: callers.at_once() >= 0.9, 30.0) is not None, "all is well before"
        await trigger()
        assert await reached(lambda: callers.at_once() <= 0.1, 30.0) is not None, "the trigger is one"
        return await reached(lambda: callers.at_once() >= 0.9, waits_s)
    finally:
        state["done"] = True
        await coming
        await callers.end()


def puller(trigger):
    """Return what makes the service slow for a while."""

    async def pull():
        trigger.touch()
        asyncio.get_running_loop().call_later(STALL_S, trigger.unlink)

    return pull


def test_e21_forebay_leaves_an_overload_by_itself_though_its_callers_have_no_manners(tmp_path):
    trigger = tmp_path / "trigger"

    async def run(port):
        async with forebay.AsyncClient(f"http://127.0.0.1:{port}", hold_back=False) as client:

            async def call():
                for _ in range(40):
                    try:
                        return await client.predict("work", None)
                    except forebay.ForebayError:
                        await asyncio.sleep(1.0)  # whatever the server asked for
                raise forebay.ForebayError("given up")

            return await through_a_stall(Callers(call), puller(trigger), waits_s=STALL_S + RECOVERY_MAX_S)

    with Served(tmp_path, "stalling.py", workers=1, env={"TRIGGER": str(trigger)}) as server:
        assert asyncio.run(run(server.port)) is not None
        server.stop()


def ask_plainly(port):
    """One try at the plain line; whoever gives up leaves its work behind."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
        connection.request("POST", "/", b"null", {"Content-Length": "4"})
        return connection.getresponse().status == 200


def test_e21_a_plain_line_under_the_same_callers_never_leaves_it(tmp_path):
    trigger = tmp_path / "trigger"
    program = str(Path(__file__).with_name("plain_line.py"))
    command = [sys.executable, program, str(trigger)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline())

        async def call():
            for _ in range(40):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if await asyncio.to_thread(ask_plainly, port):
                        return
                await asyncio.sleep(1.0)
            raise forebay.ForebayError("given up")

        async def run():
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1_000))
            return await through_a_stall(Callers(call), puller(trigger), waits_s=STALL_S + PLAIN_WAIT_S)

        try:
            assert asyncio.run(run()) is None
        finally:
            process.kill()
