"""CPUs and GPUs are counted as the machine really allows them, in both cgroup layouts."""

import pytest

from forebay.errors import ConfigError
from forebay.node.limits import cpus_allowed, default_workers, gpus_present, thread_cap


def tree(tmp_path, files: dict[str, str]):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


V2 = "0::/app\n"
V1 = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n"


@pytest.mark.parametrize(
    ("files", "affinity", "expected"),
    [
        # version 2: own group, a group above, no limit, root of a container
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/app/cpu.max": "150000 100000\n"}, 8, 1.5),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/app/cpu.max": "max 100000\n"}, 8, 8.0),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
            },
            8,
            2.0,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 8, 0.5),
        # version 1: own group, a container that sees its group at the root, no limit
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
            },
            8,
            3.0,
        ),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
            2.5,
        ),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
            8.0,
        ),
        # the affinity is the lower one; nothing readable; nonsense
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/app/cpu.max": "800000 100000\n"}, 2, 2.0),
        ({}, 3, 3.0),
        ({"proc/self/cgroup": "what\n", "sys/fs/cgroup/cpu.max": "some thing else\n"}, 3, 3.0),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100 0\n"}, 3, 3.0),
    ],
)
def test_cpus_are_the_affinity_cut_by_every_quota_above(tmp_path, files, affinity, expected):
    assert cpus_allowed(root=tree(tmp_path, files), affinity=affinity) == expected


def test_this_machine_has_a_number_of_cpus():
    assert cpus_allowed() >= 0.01


GPUS = {f"dev/nvidia{n}": "" for n in range(4)} | {"dev/nvidiactl": "", "dev/nvidia-uvm": ""}


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, 4), ("", 0), ("0,2", 2), ("-1", 0), ("0,-1,1", 1), ("GPU-8f2c", 1), ("0,9,1", 1), (" 1 , 2 ", 2)],
)
def test_visible_gpus_are_read_as_cuda_reads_them(tmp_path, visible, expected):
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus_present(env, root=tree(tmp_path, GPUS)) == expected


def test_a_container_with_one_card_of_eight_counts_one(tmp_path):
    listed = {f"proc/driver/nvidia/gpus/0000:0{n}:00.0/information": "" for n in range(8)}
    assert gpus_present({}, root=tree(tmp_path, listed)) == 8
    assert gpus_present({}, root=tree(tmp_path, {"dev/nvidia3": ""})) == 1


def test_no_gpu_is_none_whatever_the_variable_says(tmp_path):
    assert gpus_present({"CUDA_VISIBLE_DEVICES": "0,1"}, root=tmp_path) == 0


def test_workers_are_what_was_asked_else_gpus_else_cpus(tmp_path):
    quota = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "350000 100000\n"}
    assert default_workers({}, root=tree(tmp_path, quota), affinity=8) == 3
    assert default_workers({}, root=tree(tmp_path, GPUS), affinity=8) == 4
    assert default_workers({"WORKER_CONCURRENCY": "7"}, root=tmp_path, affinity=8) == 7
    assert default_workers({}, root=tree(tmp_path, {"sys/fs/cgroup/cpu.max": "1000 100000"}), affinity=8) >= 1


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "99999999999999999999", "²"])
def test_a_wrong_worker_concurrency_is_named(tmp_path, value):
    with pytest.raises(ConfigError, match="WORKER_CONCURRENCY"):
        default_workers({"WORKER_CONCURRENCY": value}, root=tmp_path)


@pytest.mark.parametrize(("cpus", "workers", "cap"), [(8, 2, 4), (4, 3, 1), (0.5, 1, 1), (16, 0, 16)])
def test_threads_are_the_quota_shared_among_the_workers(cpus, workers, cap):
    assert thread_cap(cpus, workers) == cap
