"""What the kernel's files say, in both layouts of control groups, becomes one reading."""

import os
from pathlib import Path

import pytest

from forebay.core.doctor import host_findings
from forebay.host.gpus import gpus_of, read_gpus
from forebay.host.machine import environment_of, files_max, read_host, thread_caps
from forebay.host.processors import Processors, memory_of

STAT_2 = "usage_usec {used}\nnr_periods {periods}\nnr_throttled {cut}\nthrottled_usec {cut_us}\n"
STAT_1 = "nr_periods {periods}\nnr_throttled {cut}\nthrottled_time {cut_ns}\n"


def put(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def machine_2(root, *, used=0, periods=0, cut=0, stolen=0):
    put(root, "proc/self/cgroup", "0::/app\n")
    put(root, "proc/stat", f"cpu 100 0 0 {900 - stolen} 0 0 0 {stolen} 0 0\ncpu0 1 1 1 1\n")
    put(root, "sys/fs/cgroup/app/cpu.max", "200000 100000\n")
    put(
        root,
        "sys/fs/cgroup/app/cpu.stat",
        STAT_2.format(used=used, periods=periods, cut=cut, cut_us=cut * 100_000),
    )


def machine_1(root, *, used=0, periods=0, cut=0):
    put(root, "proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n0::/\n")
    put(root, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "200000\n")
    put(root, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n")
    put(root, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpuacct.usage", f"{used * 1000}\n")
    put(
        root,
        "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.stat",
        STAT_1.format(periods=periods, cut=cut, cut_ns=cut * 100_000_000),
    )


@pytest.mark.parametrize("machine", [machine_1, machine_2])
def test_what_a_quota_did_within_the_window_is_read_in_both_layouts(tmp_path, machine):
    machine(tmp_path, used=5_000_000, periods=1000, cut=0)

    def watch(window_s):
        machine(tmp_path, used=25_000_000, periods=1100, cut=70)
        return window_s

    host = read_host(window_s=10.0, watch=watch, data=tmp_path, root=tmp_path)
    assert (host.cpu.quota, host.cpu.used, host.cpu.window_s) == (2.0, 2.0, 10.0)
    assert (host.cpu.stat.periods, host.cpu.stat.throttled) == (100, 70)
    assert host.cpu.stat.throttled_s == pytest.approx(7.0)
    assert "cpu_throttled" in [one.code for one in host_findings(host)]


def test_processor_time_of_others_is_not_taken_for_that_of_the_group(tmp_path):
    put(tmp_path, "proc/self/cgroup", "2:cpuacct:/\n1:cpu:/app\n")
    put(tmp_path, "sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "50000\n")
    put(tmp_path, "sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "100000\n")
    put(tmp_path, "sys/fs/cgroup/cpuacct/cpuacct.usage", "999\n")
    assert Processors(root=tmp_path).look().used_s is None
    put(tmp_path, "sys/fs/cgroup/cpuacct/app/cpuacct.usage", "2000000000\n")
    put(tmp_path, "proc/self/cgroup", "2:cpuacct:/app\n1:cpu:/app\n")
    assert Processors(root=tmp_path).look().used_s == 2.0


def test_time_that_the_machine_below_took_is_a_share_of_all(tmp_path):
    machine_2(tmp_path)
    processors = Processors(root=tmp_path)
    before = processors.look()
    put(tmp_path, "proc/stat", "cpu 130 0 0 950 0 0 0 20 0 0\n")
    assert processors.between(before, processors.look(), 1.0).steal_ratio == pytest.approx(0.2)


def test_a_machine_without_files_says_nothing(tmp_path):
    host = read_host(window_s=0.0, watch=lambda window_s: window_s, data=tmp_path, root=tmp_path)
    assert host.cpu.quota is host.cpu.stat is host.cpu.used is host.memory.limit_b is host.files_max is None
    assert host.disks[0].size_b > 0


@pytest.mark.parametrize(
    ("files", "limit_b", "used_b", "kills"),
    [
        (
            {"app/memory.max": "2000", "app/memory.current": "1900", "app/memory.stat": "inactive_file 400\n",
             "app/memory.events": "oom 1\noom_kill 2\n"}, 2000, 1500, 2,
        ),
        ({"app/memory.max": "max", "app/memory.current": "1900"}, 8192_000, 4096_000, None),
        (
            {"memory/app/memory.limit_in_bytes": "2000", "memory/app/memory.usage_in_bytes": "1900",
             "memory/app/memory.stat": "total_inactive_file 900\n",
             "memory/app/memory.oom_control": "oom_kill_disable 0\noom_kill 1\n"}, 2000, 1000, 1,
        ),
        (
            {"memory/app/memory.limit_in_bytes": "9223372036854771712",
             "memory/app/memory.usage_in_bytes": "1900"}, 8192_000, 4096_000, None,
        ),
    ],
)  # fmt: skip
def test_the_tightest_memory_limit_counts_and_what_can_be_dropped_does_not(
    tmp_path, files, limit_b, used_b, kills
):
    put(tmp_path, "proc/self/cgroup", "4:memory:/app\n0::/app\n")
    put(
        tmp_path,
        "proc/meminfo",
        "MemTotal: 8000 kB\nMemFree: 1 kB\nMemAvailable: 4000 kB\nHugePages_Total: 0\n",
    )
    for name, text in files.items():
        put(tmp_path, f"sys/fs/cgroup/{name}", text)
    assert memory_of(root=tmp_path) == (limit_b, used_b, kills)


def test_another_process_is_looked_at_as_it_is(tmp_path):
    put(tmp_path, f"proc/{os.getpid()}/task/{os.getpid()}/children", "11 12 13 \n")
    put(tmp_path, "proc/11/environ", "OMP_NUM_THREADS=4\0MKL_NUM_THREADS=many\0PATH=/bin\0")
    put(
        tmp_path,
        f"proc/{os.getpid()}/limits",
        "Limit  Soft  Hard\nMax open files            1024      4096   files\n",
    )
    host = read_host(window_s=0.0, watch=lambda s: s, data=tmp_path, pid=os.getpid(), root=tmp_path)
    assert host.processes == 3
    assert dict(host.thread_caps) == {
        "OMP_NUM_THREADS": 4,
        "OPENBLAS_NUM_THREADS": None,
        "MKL_NUM_THREADS": None,
    }
    assert host.files_max == 1024


def test_this_process_can_be_looked_at():
    host = read_host(window_s=0.0, watch=lambda s: s, data=Path.cwd(), pid=os.getpid())
    assert host.cpu.there >= 1 and host.memory.limit_b and host.files_max == files_max()
    assert thread_caps({"OMP_NUM_THREADS": "0"})[0] == ("OMP_NUM_THREADS", None)
    assert environment_of(2**22 + 1) == {}


GPUS = (
    "NVIDIA A10G, 37, 23028, 22500, 0x0000000000000000\n"
    "NVIDIA A10G, [N/A], 23028, [Not Supported], 0x0000000000000060\n"
)


def test_gpus_are_what_nvidia_smi_says_and_what_it_does_not_know_is_none():
    one, other = gpus_of(GPUS)
    assert (one.busy_ratio, one.memory_b, one.held_by) == (0.37, 23028 << 20, ())
    assert (other.busy_ratio, other.used_b, other.held_by) == (None, None, ("heat",))
    assert gpus_of("garbage\n\n") == ()


def smi(tmp_path, monkeypatch, script):
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_an_old_driver_that_refuses_the_question_is_asked_less(tmp_path, monkeypatch):
    smi(
        tmp_path,
        monkeypatch,
        'case "$*" in *throttle*) echo "not a valid field" >&2; exit 2;; *) echo "T4, 5, 100, 50";; esac',
    )
    gpus, why = read_gpus(tmp_path)
    assert (gpus[0].name, gpus[0].busy_ratio, why) == ("T4", 0.05, "")


def test_a_driver_that_fails_is_told_and_so_is_a_gpu_without_one(tmp_path, monkeypatch):
    put(tmp_path, "dev/nvidia0", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no nvidia-smi" in read_gpus(tmp_path)[1]
    smi(tmp_path, monkeypatch, "echo couldnt communicate >&2; exit 9")
    assert read_gpus(tmp_path) == ((), "nvidia-smi does not answer: couldnt communicate")
