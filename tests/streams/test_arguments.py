"""What a FrameQueue is made from: each mistake is one line, and what does not fit in memory is refused."""

import builtins
import gc
import os
import subprocess
import sys

import numpy
import pytest

from forebay.errors import ConfigError, InvalidError, NoMemoryError, UnsupportedError
from forebay.host.memory import memory_free_b
from forebay.streams import Backoff, FrameQueue, asked, channel, machine, seats
from tests.streams.queues import SHAPE, frame_of, values

GOOD = {"maxsize": 4, "shape": SHAPE}
MISTAKES = [
    ({"maxsize": 0}, "maxsize must be a whole number from 1 to 64000, not 0"),
    ({"maxsize": -1}, "maxsize must be a whole number"),
    ({"maxsize": True}, "maxsize must be a whole number"),
    ({"maxsize": 2.5}, "maxsize must be a whole number"),
    ({"maxsize": 64001}, "maxsize must be a whole number"),
    ({"shape": (0, 3)}, r"shape must be whole numbers above 0, not \(0, 3\)"),
    ({"shape": (-4, 3)}, "shape must be whole numbers above 0"),
    ({"shape": 480}, "shape must be 1 to 6 lengths, or None for any"),
    ({"shape": ()}, "shape must be 1 to 6 lengths"),
    ({"shape": (1,) * 7}, "shape must be 1 to 6 lengths"),
    ({"dtype": "pixels"}, "dtype must be a kind of number that numpy knows, not 'pixels'"),
    ({"dtype": object}, "dtype must be of plain numbers"),
    ({"dtype": [("r", "u1"), ("g", "u1")]}, "dtype must be of plain numbers"),
    ({"dtype": "S0"}, "dtype must be of plain numbers"),
    ({"policy": "newest"}, "policy must be one of"),
    ({"ttl": "soon"}, "ttl: 'soon' is not a duration"),
    ({"ttl": 0}, "ttl must be above zero"),
    ({"priorities": 11}, "priorities must be a whole number from 1 to 10"),
    ({"held_max": 0}, "held_max must be a whole number"),
    ({"item_bytes_max": 71}, r"item_bytes_max \(71\) is below the 72 bytes of a frame"),
    ({"shape": None}, "shape=None needs item_bytes_max"),
    ({"shape": None, "item_bytes_max": 0}, "item_bytes_max must be above zero"),
    ({"shape": None, "item_bytes_max": "large"}, "item_bytes_max: 'large' is not a size"),
    ({"bytes_max": -1}, "bytes_max: -1 is not a size"),
    ({"degrade_at": 0.95, "drop_at": 0.9}, "none would be degraded"),
]


@pytest.mark.parametrize(("wrong", "says"), MISTAKES, ids=str)
def test_a_wrong_argument_is_one_line_with_field_rule_and_value(wrong, says):
    with pytest.raises(InvalidError, match=says) as told:
        FrameQueue(**(GOOD | wrong))
    assert "\n" not in str(told.value)


def test_what_is_larger_than_memory_is_refused_with_what_would_fit(monkeypatch):
    monkeypatch.setattr(asked, "memory_free_b", lambda: 2_000_000_000)
    with pytest.raises(NoMemoryError, match="80% of the 2,000,000,000 bytes that are free here") as told:
        FrameQueue(300, shape=(2160, 3840, 3))
    fits = int(str(told.value).rpartition(" ")[2])
    assert "\n" not in str(told.value)
    assert 0 < fits < 100
    form = {"dtype": None, "policy": "block", "ttl": None, "item_bytes_max": None, "bytes_max": None}
    form |= {"degrade_at": None, "drop_at": None, "priorities": 1, "held_max": 8, "shape": (2160, 3840, 3)}
    assert asked.form_of(maxsize=fits, **form).size <= 1_600_000_000
    with pytest.raises(NoMemoryError):
        asked.form_of(maxsize=fits + 1, **form)


def test_bytes_max_bounds_the_memory():
    with pytest.raises(NoMemoryError, match=r"more than bytes_max \(1,000,000\): not even one frame fits"):
        FrameQueue(4, shape=(1080, 1920, 3), bytes_max="1MB")


def test_the_memory_that_is_free_is_cut_by_the_cgroup(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    8000 kB\n")
    assert memory_free_b(tmp_path) == 8_192_000
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    group = tmp_path / "sys/fs/cgroup/a"
    (group / "b").mkdir(parents=True)
    (group / "b/memory.max").write_text("max\n")
    (group / "memory.max").write_text("5000000\n")
    (group / "memory.current").write_text("1000000\n")
    assert memory_free_b(tmp_path) == 4_000_000
    (group / "memory.current").write_text("4900000\n")
    (group / "memory.stat").write_text("anon 900000\ninactive_file 3900000\n")
    assert memory_free_b(tmp_path) == 4_000_000, "what was read from files, a model's weights, is no loss"
    old = tmp_path / "sys/fs/cgroup/memory/job"
    old.mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("3:memory:/job\n")
    (old / "memory.limit_in_bytes").write_text("3000000")
    (old / "memory.usage_in_bytes").write_text("3500000")
    assert memory_free_b(tmp_path) == 0


def refuse(*_):
    raise OSError(38, "Function not implemented")


def test_without_memfd_frames_are_in_shared_memory_and_this_is_said(monkeypatch, caplog):
    monkeypatch.setattr(machine.os, "memfd_create", refuse)
    q = FrameQueue(**GOOD)
    q.put(frame_of(5))
    assert (q.transport, values(q, 1)) == ("shm", [5])
    assert "frames are in shm: memfd is not to be had here (memfd: [Errno 38]" in caplog.text
    q.close()


def test_without_shared_memory_frames_are_in_a_file_without_a_name(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(machine.os, "memfd_create", refuse)
    monkeypatch.setattr(machine, "SHARED_MEMORY", str(tmp_path / "not there"))
    monkeypatch.setattr(machine.tempfile, "gettempdir", lambda: str(tmp_path))
    q = FrameQueue(**GOOD)
    q.put(frame_of(5))
    assert (q.transport, values(q, 1)) == ("file", [5])
    assert list(tmp_path.iterdir()) == []
    q.close()


def test_where_no_place_has_the_memory_each_says_why(monkeypatch):
    def full(fd, start, size):
        raise OSError(28, "No space left on device")

    before = descriptors()
    monkeypatch.setattr(machine.os, "posix_fallocate", full)
    with pytest.raises(NoMemoryError, match="memfd: No space left.*; shm: No space left.*; file: No space"):
        FrameQueue(**GOOD)
    assert descriptors() == before


def test_the_limit_of_pipes_is_named(monkeypatch):
    def small(fd, what, size=0):
        if what == channel.fcntl.F_SETPIPE_SZ:
            raise PermissionError(1, "Operation not permitted")
        return 8192

    monkeypatch.setattr(channel.fcntl, "fcntl", small)
    before = descriptors()
    with pytest.raises(UnsupportedError, match="this user gets 8192, enough for 512: .*pipe-user-pages-soft"):
        FrameQueue(600, shape=(1,))
    assert descriptors() == before


def test_the_largest_queue_there_may_be_fits_the_pipes_of_any_user(monkeypatch):
    widest = []
    real = channel.fcntl.fcntl

    def note(fd, what, *rest):
        if what == channel.fcntl.F_SETPIPE_SZ:
            widest.append(rest[0])
        return real(fd, what, *rest)

    monkeypatch.setattr(channel.fcntl, "fcntl", note)
    q = FrameQueue(channel.ENTRIES_MAX, shape=(1,), held_max=1024)
    assert max(widest) <= 1 << 20  # /proc/sys/fs/pipe-max-size
    q.put(frame_of(3, (1,)))
    assert (values(q, 1), q.audit()) == ([3], 0)
    q.close()


def test_elsewhere_than_on_linux_it_says_what_to_do_instead():
    with pytest.raises(UnsupportedError, match=r"needs Linux.*this is darwin: use threads with queue\.Queue"):
        machine.check_system("darwin")


def test_without_numpy_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name == "numpy":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"pip install 'forebay\[streams\]'"):
        FrameQueue(**GOOD)


def test_a_process_of_another_user_that_proc_hides_is_not_dead(monkeypatch):
    def forbidden(pid, number):
        raise PermissionError(1, "Operation not permitted")

    q = FrameQueue(**GOOD)
    q.put(frame_of())
    monkeypatch.setattr(seats, "started_at", lambda pid: None)
    assert seats.living(q._ring.slab) == ([], [0])
    monkeypatch.setattr(machine.os, "kill", forbidden)
    assert seats.living(q._ring.slab) == ([0], [])
    monkeypatch.undo()
    q.close()


def test_a_queue_that_is_gone_leaves_no_descriptor():
    before = descriptors()
    for _ in range(3):
        q = FrameQueue(**GOOD)
        q.put(frame_of())
        q.get().release()
        q.close()
        del q
    assert descriptors() == before


def test_the_memory_of_a_queue_is_bounded_from_the_beginning():
    q = FrameQueue(4, shape=(1000, 1000), policy=Backoff(), priorities=2, held_max=2)
    assert (q.maxsize, q.slots, q.slots_free()) == (4, 8, 8)
    assert 8_000_000 < q.size_bytes < 8_200_000
    assert repr(q) == "<FrameQueue maxsize=4 (1000, 1000) |u1>"
    q.close()


def test_a_kind_of_number_of_every_plain_sort_is_taken():
    for kind in ("?", "i8", ">u2", "f2", "c16", "M8[ns]", numpy.float32):
        q = FrameQueue(1, shape=(2, 2), dtype=kind)
        q.put(frame_of(1, (2, 2), kind))
        with q.get() as frame:
            assert frame.array.dtype == numpy.dtype(kind)
        q.close()


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_queue_does_not_import_the_server():
    code = "import sys, forebay.streams.queue; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"fastapi", "uvicorn", "apsw", "pydantic", "httpx", "prometheus_client"} & set(
        done.stdout.split()
    )
