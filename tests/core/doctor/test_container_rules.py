"""What a container runtime says of one container: its limits, what is used of them, how it ended."""

import pytest

from forebay.core.doctor import container_findings
from forebay.core.doctor.readings import Container

GB = 10**9
HEALTHY = Container("detector", quota=2.0, memory_b=2 * GB, gpus=1, used=1.5, used_b=GB)


def test_a_healthy_container_has_nothing_wrong():
    assert container_findings(HEALTHY, gpus_there=1) == []


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"oom_killed": True, "restarts": 9}, "out_of_memory"),
        ({"restarts": 3}, "restarts"),
        ({"used_b": 2 * GB - 1}, "memory_nearly_full"),
        ({"used": 1.95}, "cpu_at_its_quota"),
        ({"used": 1.0}, "one_cpu_busy"),
        ({"used": 1.0, "quota": None}, "one_cpu_busy"),
        ({"gpus": 0}, "gpu_not_given"),
    ],
)
def test_a_fault_is_named_alone_and_with_the_container(changed, cause):
    (found,) = container_findings(HEALTHY._replace(**changed), gpus_there=1)
    assert (found.code, found.task) == (cause, "detector") and found.evidence and found.change


@pytest.mark.parametrize(
    "changed", [{"gpus": -1}, {"used": None}, {"memory_b": None, "used_b": 9 * GB}, {"restarts": 2}]
)
def test_what_is_no_fault_is_not_named(changed):
    assert container_findings(HEALTHY._replace(**changed), gpus_there=4) == []
