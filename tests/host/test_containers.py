"""What docker prints of containers, by inspect and by stats, becomes one reading of each."""

import json

import pytest

from forebay.host.containers import containers_of

INSPECT = {
    "Id": "abc", "Name": "/detector", "RestartCount": 2, "State": {"OOMKilled": False},
    "HostConfig": {"NanoCpus": 0, "CpuQuota": 200_000, "CpuPeriod": 100_000, "Memory": 2 << 30,
                   "DeviceRequests": [{"Count": -1, "DeviceIDs": None}]},
}  # fmt: skip
STATS = {"Name": "detector", "CPUPerc": "99.87%", "MemUsage": "1.8GiB / 2GiB"}


def test_both_become_one():
    (found,) = containers_of(json.dumps([INSPECT]) + "\n" + json.dumps(STATS) + "\n")
    assert found.name == "detector" and found.quota == 2.0 and found.memory_b == 2 << 30 and found.gpus == -1
    assert (
        found.used == pytest.approx(0.9987) and found.used_b == int(1.8 * (1 << 30)) and found.restarts == 2
    )
    assert containers_of(json.dumps(STATS) + json.dumps([INSPECT])) == [found]


@pytest.mark.parametrize(
    ("host", "quota", "gpus"),
    [
        ({"NanoCpus": 1_500_000_000}, 1.5, 0),
        ({"CpuQuota": 50_000, "CpuPeriod": 0}, 0.5, 0),
        ({"CpuQuota": -1}, None, 0),
        ({}, None, 0),
        ({"DeviceRequests": [{"Count": 2}, {"DeviceIDs": ["0"]}]}, None, 3),
        ({"DeviceRequests": None}, None, 0),
        (None, None, 0),
    ],
)
def test_limits_are_read_as_docker_writes_them(host, quota, gpus):
    (found,) = containers_of(json.dumps({"Name": "/x", "HostConfig": host}))
    assert (found.quota, found.gpus, found.memory_b, found.oom_killed) == (quota, gpus, None, False)


@pytest.mark.parametrize(
    ("usage", "used_b"),
    [("512MiB / 2GiB", 512 << 20), ("1.5kB / 2GB", 1500), ("0B / 0B", 0), ("-- / --", None), ("", None)],
)
def test_sizes_are_read_as_docker_writes_them(usage, used_b):
    (found,) = containers_of(json.dumps({"Name": "x", "CPUPerc": "--", "MemUsage": usage}))
    assert (found.used, found.used_b) == (None, used_b)


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": 1}', "CONTAINER ID   NAME", "[" * 100_000, '"x"'])
def test_what_is_neither_is_refused(text):
    with pytest.raises(ValueError, match="docker"):
        containers_of(text)


def test_nothing_is_no_container():
    assert containers_of(" \n") == []
