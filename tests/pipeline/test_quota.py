"""A CPU quota is seen and named to whoever runs a pipeline under it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.core.throttling import CpuStat
from forebay.pipeline.quota import CpuQuota
from tests.pipeline.cgroups import cpu_group

SCENE = Path(__file__).with_name("throttled_cameras.py")


def machine(root, cgroup, files):
    """Lay out proc and sys below `root`."""
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def counters(periods, throttled, extra):
    return f"nr_periods {periods}\nnr_throttled {throttled}\n{extra}\n"


def test_the_tightest_quota_counts_and_what_it_cut_since_the_start_in_cgroup_2(tmp_path):
    inner, outer = "sys/fs/cgroup/a/b", "sys/fs/cgroup/a"
    files = {
        f"{inner}/cpu.max": "max 100000",
        f"{inner}/cpu.stat": counters(0, 0, "throttled_usec 0"),
        f"{outer}/cpu.max": "50000 100000",
        f"{outer}/cpu.stat": counters(100, 10, "throttled_usec 2000000"),
    }
    quota = CpuQuota(machine(tmp_path, "0::/a/b\n", files))
    (tmp_path / outer / "cpu.stat").write_text(counters(140, 30, "throttled_usec 5000000"))
    assert quota.look() == (0.5, CpuStat(40, 20, 3.0))


def test_a_quota_of_cgroup_1_is_found(tmp_path):
    group = "sys/fs/cgroup/cpu,cpuacct/docker/x"
    files = {
        f"{group}/cpu.cfs_quota_us": "200000\n",
        f"{group}/cpu.cfs_period_us": "100000\n",
        f"{group}/cpu.stat": counters(1, 0, "throttled_time 0"),
    }
    quota = CpuQuota(machine(tmp_path, "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n", files))
    (tmp_path / group / "cpu.stat").write_text(counters(11, 5, "throttled_time 1500000000"))
    assert quota.look() == (2.0, CpuStat(10, 5, 1.5))


@pytest.mark.parametrize("files", [{}, {"sys/fs/cgroup/cpu.max": "max 100000"}])
def test_without_a_quota_there_is_nothing_to_tell(tmp_path, files):
    assert CpuQuota(machine(tmp_path, "0::/\n", files)).look() is None


@pytest.mark.timeout(120)
def test_m5_cameras_under_a_real_quota_have_the_throttling_named_and_every_frame_accounted_for():
    with cpu_group(0.25) as procs:
        done = subprocess.run(
            [sys.executable, str(SCENE), str(procs)], capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 0, done.stderr
    named = r"CPU throttled \d+% by a quota of 0\.25 CPUs \(nr_throttled [1-9]\d* of \d+ periods, [\d.]+ s in all\)"
    live, *after = done.stdout.splitlines()
    assert re.search(named, live), live
    assert any(re.search(named, line) for line in after)
    (ratio,) = re.findall(r"^inference_cpu_throttled_ratio (\S+)$", done.stdout, re.MULTILINE)
    assert float(ratio) > 0
    assert after[-1] == "sent 600 unaccounted 0"
