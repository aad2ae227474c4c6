"""Ten faults seeded into one healthy machine: each is named, alone, with its evidence and its change."""

import pytest

from forebay.core.doctor import host_findings
from forebay.core.doctor.host_rules import RULES, cpus_needed
from forebay.core.doctor.readings import Cpu, Disk, Gpu, Host, Memory
from forebay.core.throttling import CpuStat

GB = 10**9
HEALTHY = Host(
    cpu=Cpu(there=8, quota=4.0, stat=CpuStat(1000, 10, 0.1), used=2.5, window_s=10.0, steal_ratio=0.001),
    memory=Memory(limit_b=8 * GB, used_b=4 * GB, oom_kills=0),
    disks=(Disk("store", "/data", 100 * GB, 60 * GB, 1000, 900),),
    gpus=(Gpu("A10", 0.9, 24 * GB, 12 * GB),),
    thread_caps=(("OMP_NUM_THREADS", 2),),
    processes=2,
    files_max=65_536,
    model="m5.large",
    clock_ahead_s=0.2,
)
CPU = HEALTHY.cpu
FAULTS = {
    "cpu_throttled": {"cpu": CPU._replace(quota=2.0, used=2.0, stat=CpuStat(100, 70, 9.5))},
    "cpu_stolen": {"cpu": CPU._replace(steal_ratio=0.2)},
    "cpu_by_credits": {"model": "t2.large"},
    "out_of_memory": {"memory": Memory(8 * GB, 4 * GB, 3)},
    "memory_nearly_full": {"memory": Memory(8 * GB, int(7.5 * GB), 0)},
    "disk_nearly_full": {"disks": (Disk("store", "/data", 100 * GB, 5 * GB),)},
    "inodes_nearly_used": {"disks": (Disk("store", "/data", 100 * GB, 60 * GB, 1000, 10),)},
    "too_many_threads": {"thread_caps": (("OMP_NUM_THREADS", None),), "processes": 8},
    "gpu_unseen": {
        "gpus": (),
        "gpus_unseen": "2 NVIDIA GPUs are here and there is no nvidia-smi to read them",
    },
    "gpu_memory_nearly_full": {"gpus": (Gpu("A10", 0.9, 24 * GB, int(23.5 * GB)),)},
    "gpu_slowed": {"gpus": (Gpu("A10", 0.9, 24 * GB, 12 * GB, ("heat",)),)},
    "few_open_files": {"files_max": 1024},
    "clocks_differ": {"clock_ahead_s": -4.0},
}


def test_a_healthy_machine_has_nothing_wrong():
    assert host_findings(HEALTHY) == []


def test_a_machine_that_says_nothing_has_nothing_wrong():
    assert host_findings(Host(Cpu(1))) == []


@pytest.mark.parametrize("cause", FAULTS)
def test_a_fault_is_named_alone(cause):
    (found,) = host_findings(HEALTHY._replace(**FAULTS[cause]))
    assert found.code == cause and found.evidence and found.change


def test_all_faults_at_once_are_all_named():
    broken = HEALTHY._replace(
        cpu=FAULTS["cpu_throttled"]["cpu"]._replace(steal_ratio=0.2),
        memory=Memory(8 * GB, int(7.5 * GB), 3),
        disks=(Disk("store", "/data", 100 * GB, 5 * GB, 1000, 10),),
        gpus=(Gpu("A10", 0.9, 24 * GB, int(23.5 * GB), ("heat",)),),
        **{name: FAULTS[cause][name] for cause, name in (
            ("cpu_by_credits", "model"), ("few_open_files", "files_max"), ("clocks_differ", "clock_ahead_s"),
            ("too_many_threads", "thread_caps"), ("too_many_threads", "processes"),
            ("gpu_unseen", "gpus_unseen"),
        )},
    )  # fmt: skip
    assert {one.code for one in host_findings(broken)} == set(FAULTS)
    assert len(RULES) == 9


@pytest.mark.parametrize(
    ("stat", "used", "there", "change"),
    [
        (CpuStat(100, 70, 9.5), 2.0, 8, "allow 3 CPUs"),  # 2 in use and 0.95 kept from running
        (CpuStat(100, 30, 0.01), 1.1, 8, "allow 3 CPUs"),  # never what is there already
        (CpuStat(100, 90, 60.0), 2.0, 16, "allow 8 CPUs"),
        (CpuStat(100, 90, 60.0), 2.0, 4, "8 CPUs are wanted and the machine has 4"),
    ],
)
def test_the_change_says_how_many_processors_the_work_would_use(stat, used, there, change):
    host = Host(Cpu(there, quota=2.0, stat=stat, used=used, window_s=10.0))
    (found,) = host_findings(host)
    assert change in found.change


@pytest.mark.parametrize("stat", [CpuStat(9, 9, 5.0), CpuStat(100, 20, 5.0), CpuStat(0, 0, 0.0), None])
def test_few_periods_or_few_cuts_are_no_fault(stat):
    assert host_findings(Host(Cpu(8, quota=2.0, stat=stat, used=2.0, window_s=10.0))) == []


def test_a_need_without_a_window_is_what_was_used():
    assert cpus_needed(1.5, 9.0, 0.0) == 1.5
