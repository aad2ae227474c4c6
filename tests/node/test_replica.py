"""The parent's side of a child: every death is seen at once, named, and nobody else's trouble."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import uvloop

from forebay.clock import SystemClock
from forebay.node import replica as replica_module
from forebay.node.death import OomCounter, name_death
from forebay.node.frames import ItemResult, RunItem, encode_result
from forebay.node.link import left_behind
from forebay.node.log_tail import LINE_LENGTH_MAX, LINES_MAX, LogTail
from forebay.node.replica import Replica
from tests.child.harness import Watcher, in_child, items, spec_of, written
from tests.waiting import until

SEEN_MAX_S = 1.0  # a death is known within this time

HELD = "ctypes.PyDLL(None).poll(None, 0, {ms})"  # called with the GIL held, unlike CDLL


def dying(statement: str) -> str:
    return f"@app.task()\ndef f(x):\n    if x == 1: {statement}\n    return x\n"


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        ("ctypes.string_at(0)", "signal", "SIGSEGV"),
        ("os.abort()", "signal", "SIGABRT"),
        ("os._exit(0)", "exit", "exit code 0"),
        ("os._exit(1)", "exit", "exit code 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal", "maybe out of memory"),
    ],
)
@pytest.mark.timed
def test_a_death_is_seen_in_under_a_second_named_and_laid_on_the_right_item(tmp_path, statement, code, words):
    async def doing(replica, watcher):
        began = time.monotonic()
        replica.run(1, "f", items(0, 1, 2), singles=True)
        await watcher.until(lambda: watcher.deaths)
        assert time.monotonic() - began < SEEN_MAX_S + 1.0  # a crash dump takes its time

    (death,) = in_child(tmp_path, dying(statement), doing, "f").deaths
    assert death.code == code
    assert words in death.message
    assert death.tag == 1
    assert death.was_ready


@pytest.mark.parametrize("size", [10, 5_000, 20_000])  # the largest is worth a message of its own
def test_what_ended_before_the_deadly_item_is_heard_although_it_was_not_sent(tmp_path, size):
    """Results wait for company; whoever kills the process takes none of them along."""
    source = f"""
    from forebay.child import line, sync_loop
    line.FLUSH_S = sync_loop.FLUSH_S = 3600.0
    @app.task()
    def f(x):
        if x == 3: os._exit(1)
        return "x" * {size}
    """

    async def doing(replica, watcher):
        replica.run(1, "f", items(0, 1, 2, 3, 4), singles=True)
        await watcher.until(lambda: watcher.deaths)

    seen = in_child(tmp_path, source, doing, "f")
    assert seen.outputs() == ["x" * size] * 3
    assert (seen.deaths[0].tag, seen.deaths[0].arrived) == (3, 1)


def test_what_was_heard_is_not_heard_again_from_what_was_kept():
    def kept(count):
        return bytes([0x90 + count]) + b"".join(encode_result(ItemResult(tag, b"1")) for tag in range(3))

    assert [one.tag for one in left_behind(kept(3), 2)] == [2]
    assert left_behind(kept(3), 3) == left_behind(b"\x90", 0) == []
    assert left_behind(kept(4), 0) == left_behind(kept(2), 0) == [], "user code wrote over it"


def test_a_crash_in_c_leaves_the_python_stack_in_the_log(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.until(lambda: watcher.deaths)

    (death,) = in_child(tmp_path, dying("print('so far'); ctypes.string_at(0)"), doing, "f").deaths
    assert "so far" in death.log_tail
    assert any("application.py" in line for line in death.log_tail)


def test_a_death_in_a_batch_names_no_single_item(tmp_path):
    source = "@app.task(batch_max=4)\nclass M:\n    def predict(self, xs):\n        os._exit(3)\n"

    async def doing(replica, watcher):
        replica.run(1, "M", items(0, 1), singles=False)
        await watcher.until(lambda: watcher.deaths)

    (death,) = in_child(tmp_path, source, doing, "M").deaths
    assert (death.exit_code, death.tag) == (3, None)


def test_a_held_gil_shows_as_unresponsive_and_is_no_death(tmp_path):
    door = tmp_path / "door"  # whoever opens it to read waits for one who opens it to write
    os.mkfifo(door)

    async def doing(replica, watcher):
        await watcher.until(lambda: not replica.unresponsive)
        replica.run(1, "f", items(1), singles=True)
        await watcher.until(lambda: replica.unresponsive)
        os.close(os.open(door, os.O_RDWR))
        await watcher.finished(1)
        await watcher.until(lambda: not replica.unresponsive)

    held = f"ctypes.PyDLL(None).open({str(door).encode()!r}, os.O_RDONLY)"  # with the GIL, unlike CDLL
    assert in_child(tmp_path, dying(held), doing, "f").outputs() == [1]


@pytest.mark.timed
def test_a_child_that_holds_the_gil_can_be_killed_at_once(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.until(lambda: replica.current_tag == 0)
        replica.kill("timeout")
        began = time.monotonic()
        await watcher.until(lambda: watcher.deaths)
        assert time.monotonic() - began < SEEN_MAX_S

    (death,) = in_child(tmp_path, dying(HELD.format(ms=60_000)), doing, "f").deaths
    assert (death.code, death.killed_for, death.tag) == ("killed", "timeout", 0)


def test_closing_its_output_does_no_harm(tmp_path):
    source = "@app.task()\ndef f(x):\n    os.close(1)\n    os.close(2)\n    return x\n"
    source += "@app.task()\ndef g(x):\n    raise ValueError('traceback to nowhere')\n"

    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        replica.run(2, "g", items(1, first=1), singles=True)
        await watcher.finished(2)

    assert in_child(tmp_path, source, doing).outputs() == [1, "handler_failed"]


def test_a_flood_of_output_is_taken_and_only_its_end_is_kept(tmp_path):
    source = r"""
    @app.task()
    def f(x):
        for _ in range(300):
            os.write(1, b"\xff" * 65536)
        os.write(2, b"\nthe last words\n")
        return x
    """

    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.finished(1)
        await watcher.until(lambda: "the last words" in replica.log.lines())
        assert sum(map(len, replica.log.lines())) < 2 * LINE_LENGTH_MAX
        assert replica.log.bytes_seen > 300 * 65536

    in_child(tmp_path, source, doing, "f")


def test_the_tail_of_a_log_is_bounded_in_lines_and_in_bytes():
    tail = LogTail()
    for _ in range(10):
        tail.feed(b"x" * 1_000_000)
        assert len(tail._open) <= LINE_LENGTH_MAX + 1
        tail.feed(b"\n" + b"y" * 1_000_000)
        assert len(tail._open) <= LINE_LENGTH_MAX + 1
    tail.feed(b"\n" + b"line\n" * 5_000 + b"\xfe\xff open")
    assert len(tail.lines()) == LINES_MAX
    assert tail.lines()[-1].endswith(" open")
    tail.feed(b" end\n")
    assert tail.lines()[-1].endswith(" open end")


ECHO = "@app.task()\ndef f(x):\n    return x\n"


@pytest.mark.timed
def test_a_child_killed_while_a_large_payload_is_on_its_way_stalls_nobody(tmp_path):
    async def doing(replica, watcher):
        os.kill(replica.pid, signal.SIGSTOP)
        began = time.monotonic()
        assert replica.run(1, "f", [RunItem(0, b'"' + b"x" * 10_000_000 + b'"')], singles=True)
        assert time.monotonic() - began < 0.5
        replica.kill("timeout")
        await watcher.until(lambda: watcher.deaths)

    assert in_child(tmp_path, ECHO, doing, "f").results == {}


def test_a_child_killed_while_a_large_result_is_on_its_way_gives_no_half_result(tmp_path):
    source = """
    @app.task()
    def f(x, context):
        context.progress(1)
        time.sleep(0.1)
        return 'x' * 10_000_000
    """

    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.until(lambda: watcher.reports)
        replica._transport.pause_reading()
        await watcher.until(lambda: psutil.Process(replica.pid).status() == psutil.STATUS_SLEEPING)
        os.kill(replica.pid, signal.SIGKILL)
        replica._transport.resume_reading()
        await watcher.until(lambda: watcher.deaths)

    assert in_child(tmp_path, source, doing, "f", result_bytes_max=20_000_000).results == {}


def test_a_stopped_child_takes_a_bounded_amount_and_then_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr(replica_module, "WRITE_BUFFER_MAX", 3_000_000)

    async def doing(replica, watcher):
        os.kill(replica.pid, signal.SIGSTOP)
        item = [RunItem(0, b'"' + b"x" * 1_000_000 + b'"')]
        taken = [replica.run(n, "f", item, singles=True) for n in range(10)]
        assert taken[0]
        assert not taken[-1]

    in_child(tmp_path, ECHO, doing, "f")


def test_garbage_on_our_descriptor_ends_the_child_and_says_why(tmp_path):
    source = """
    @app.task()
    def f(x):
        for fd in map(int, os.listdir('/proc/self/fd')):  # its number is the parent's
            if fd < 3:
                continue
            try:
                os.write(fd, b"\\xff" * 16)
            except OSError:
                pass
        time.sleep(30)
    """

    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.until(lambda: watcher.deaths)

    (death,) = in_child(tmp_path, source, doing, "f").deaths
    assert "descriptor" in death.message


def test_a_child_that_closes_our_descriptor_is_ended_and_replaced(tmp_path):
    source = "@app.task()\ndef f(x):\n    os.closerange(3, 65536)\n    time.sleep(30)\n"

    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.until(lambda: watcher.deaths)

    assert len(in_child(tmp_path, source, doing, "f").deaths) == 1


PARENT = """
import asyncio, os, sys
from forebay.clock import SystemClock
from tests.child.harness import Watcher, items, spec_of
from forebay.node.replica import Replica

async def main():
    watcher = Watcher()
    replica = await Replica.start(spec_of(sys.argv[1], "f"), watcher, clock=SystemClock())
    await watcher.until(lambda: watcher.ready)
    replica.run(1, "f", items(1), singles=True)
    await watcher.until(lambda: replica.current_tag == 0)
    print(replica.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("statement", ["time.sleep(60)", HELD.format(ms=60_000)])
@pytest.mark.timed
def test_a_child_is_gone_within_a_second_of_its_parents_kill(tmp_path, statement):
    app = written(tmp_path, dying(statement))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}
    with subprocess.Popen([sys.executable, "-c", PARENT, app], stdout=subprocess.PIPE, env=env) as parent:
        try:
            child = psutil.Process(int(parent.stdout.readline()))
        finally:
            parent.kill()
        gone = lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE  # noqa: E731
        until(gone, SEEN_MAX_S, "the child died")


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("1 / 0", "import_failed", "ZeroDivisionError"),
        ("@app.task()\ndef g(x): return x\n", "import_failed", "declares no task f"),
        (
            "@app.task()\nclass f:\n    def load(self, device):\n        raise OSError('no weights')\n"
            "    def predict(self, xs): return xs\n",
            "load_failed",
            "no weights",
        ),
        (
            "@app.task()\nclass f:\n    def load(self, device):\n        os._exit(7)\n"
            "    def predict(self, xs): return xs\n",
            "exit",
            "exit code 7",
        ),
        (
            "@app.task()\nclass f:\n    def load(self, device):\n        time.sleep(60)\n"
            "    def predict(self, xs): return xs\n",
            "killed",
            "load_timeout",
        ),
    ],
)
def test_a_child_that_cannot_load_says_why(tmp_path, source, code, words):
    async def doing(replica, watcher):
        await watcher.until(lambda: watcher.deaths)

    limit = 1.5 if code == "killed" else 30.0
    (death,) = in_child(tmp_path, source, doing, "f", load_timeout_s=limit).deaths
    assert death.code == code
    assert words in death.message
    assert not death.was_ready


def test_all_children_start_while_threads_of_the_parent_log(tmp_path):
    app = written(tmp_path, "import logging\nlogging.getLogger().warning('imported')\n" + ECHO)
    stop = threading.Event()
    logger = logging.getLogger("noise")
    logger.propagate = False
    logger.addHandler(logging.StreamHandler(open(os.devnull, "w")))  # noqa: SIM115

    def log():
        while not stop.is_set():
            logger.warning("noise")
            stop.wait(0.001)

    threads = [threading.Thread(target=log) for _ in range(4)]

    async def main():
        watcher = Watcher()
        replicas = []
        for _ in range(8):
            replicas.append(await Replica.start(spec_of(app), watcher, clock=SystemClock()))
        await watcher.until(lambda: watcher.ready == len(replicas))
        for replica in replicas:
            replica.kill("the test is over")
        for replica in replicas:
            await replica.wait()
        assert len(watcher.deaths) == len(replicas)

    for thread in threads:
        thread.start()
    try:
        asyncio.run(main())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        logger.handlers.pop().stream.close()


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_what_a_handler_started_ends_with_the_child(tmp_path, ending):
    source = """
    import subprocess
    @app.task()
    def f(x):
        return subprocess.Popen(["sleep", "600"]).pid
    """
    pids = []

    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.finished(1)
        pids.extend(watcher.outputs())
        if ending == "stop":
            await replica.stop(10)
        else:
            replica.kill("recycled")
            await replica.wait()

    in_child(tmp_path, source, doing, "f")
    until(
        lambda: not psutil.pid_exists(pids[0]) or psutil.Process(pids[0]).status() == "zombie", 30, "it ended"
    )


def test_a_child_that_does_not_stop_is_killed_after_the_grace(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.until(lambda: replica.current_tag == 0)
        death = await replica.stop(0.2)
        assert death.code == "killed"

    in_child(tmp_path, dying("time.sleep(60)"), doing, "f")


def test_signals_to_a_child_are_the_parents_business(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.until(lambda: replica.current_tag == 0)
        os.kill(replica.pid, signal.SIGTERM)
        os.kill(replica.pid, signal.SIGINT)
        await watcher.finished(1)

    assert in_child(tmp_path, dying("time.sleep(0.3)"), doing, "f").outputs() == [1]


def test_a_child_has_caps_for_threads_and_its_own_device(tmp_path):
    source = """
    @app.task()
    class M:
        def load(self, device):
            self.device = device
        def predict(self, xs):
            return [[str(self.device), self.device.slot, *map(os.environ.get, xs[0])]] * len(xs)
    """
    names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"]
    env = {**os.environ, "MKL_NUM_THREADS": "9"}

    async def doing(replica, watcher):
        replica.run(1, "M", items(names), singles=False)
        await watcher.finished(1)

    gpu = in_child(
        tmp_path,
        source,
        doing,
        "M",
        device="cuda",
        slot=1,
        threads=3,
        env={**env, "CUDA_VISIBLE_DEVICES": "4,6"},
    )
    assert gpu.outputs() == [["cuda:0", 1, "3", "9", "6"]]
    cpu = in_child(tmp_path, source, doing, "M", threads=2, env=env)
    assert cpu.outputs() == [["cpu", None, "2", "9", ""]]


def test_it_runs_on_uvloop_too_and_knows_its_memory(tmp_path):
    app = written(tmp_path, dying("os._exit(1)"))

    async def main():
        watcher = Watcher()
        replica = await Replica.start(spec_of(app), watcher, clock=SystemClock())
        await watcher.until(lambda: watcher.ready)
        assert replica.memory_b() > 5_000_000
        replica.run(1, "f", items(*[0] * 200, 1), singles=True)
        death = await asyncio.wait_for(replica.wait(), 30)
        assert death.exit_code == 1
        assert replica.memory_b() == 0

    uvloop.run(main())


def test_deaths_have_their_names():
    quiet = {"killed_for": "", "stopping": False, "oom_kills": 0, "load_failure": None}
    assert name_death(-9, **{**quiet, "oom_kills": 1})[0] == "oom"
    assert name_death(-9, **quiet)[0] == "signal"
    assert name_death(-9, **{**quiet, "killed_for": "timeout"})[:2] == (
        "killed",
        "the worker process was killed (timeout)",
    )
    assert name_death(-11, **quiet) == ("signal", "the worker process died by SIGSEGV", "SIGSEGV")
    assert name_death(0, **{**quiet, "stopping": True})[0] == "stopped"
    assert name_death(0, **quiet)[0] == "exit"


@pytest.mark.parametrize(
    ("membership", "counter", "text"),
    [
        ("0::/app\n", "app/memory.events", "low 0\noom 2\noom_kill {}\n"),
        ("0::/elsewhere\n", "memory.events", "oom_kill {}\n"),
        ("4:memory:/d/x\n0::/\n", "memory/d/x/memory.oom_control", "oom_kill_disable 0\noom_kill {}\n"),
        ("4:memory:/d/x\n0::/\n", "memory/memory.oom_control", "under_oom 0\noom_kill {}\n"),
    ],
)
def test_memory_kills_are_counted_in_both_cgroup_layouts(tmp_path, membership, counter, text):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(membership)
    file = tmp_path / "sys/fs/cgroup" / counter
    file.parent.mkdir(parents=True)
    file.write_text(text.format(3))
    oom = OomCounter(tmp_path)
    assert oom.new_kills() == 0
    file.write_text(text.format(5))
    assert oom.new_kills() == 2
    assert oom.new_kills() == 0


def test_a_machine_without_cgroups_counts_no_memory_kills(tmp_path):
    assert OomCounter(tmp_path).new_kills() == 0
