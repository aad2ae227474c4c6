"""What in the settings contradicts is told once, however many tasks it is true of."""

from collections import namedtuple

import pytest

from forebay.config import Settings
from forebay.core.task import TaskSpec
from forebay.node import contradictions

Usage = namedtuple("Usage", "total used free")


def said_of(count, monkeypatch):
    monkeypatch.setattr(contradictions.shutil, "disk_usage", lambda _: Usage(2_000_000, 0, 1_000_000))
    said = []
    tasks = [TaskSpec(name=f"task{number}") for number in range(count)]
    contradictions.say_contradictions(
        tasks, Settings(), warn=lambda event, **facts: said.append((event, facts))
    )
    return said


def test_a_small_disk_is_one_line_for_all_tasks(monkeypatch):
    ((event, facts),) = said_of(3, monkeypatch)
    assert (event, facts["code"], facts["task"]) == (
        "limits_contradict", "queue_over_disk", "task0, task1, task2"
    )  # fmt: skip


def test_many_tasks_are_counted_behind_the_first_ten(monkeypatch):
    ((_, facts),) = said_of(12, monkeypatch)
    assert facts["task"].endswith("task9 and 2 more")


@pytest.mark.parametrize(
    ("gpus", "named"), [(0, "all, first, third"), (1, "third"), (3, None)], ids=["none", "one", "three"]
)
def test_a_gpu_that_is_not_there_is_told_before_its_load_fails(gpus, named):
    said = []
    tasks = [
        TaskSpec(name="all", devices=("cuda",)), TaskSpec(name="first", devices=("cpu", "cuda:0")),
        TaskSpec(name="third", devices=("cuda:2",)), TaskSpec(name="cpu", devices=("cpu",)), TaskSpec(name="any"),
    ]  # fmt: skip
    contradictions.say_missing_gpus(tasks, gpus, warn=lambda event, **facts: said.append((event, facts)))
    assert [facts["task"] for _, facts in said] == ([] if named is None else [named])
    assert all(event == "gpu_missing" and f"{gpus} GPU" in facts["why"] for event, facts in said)


def test_a_server_looks_for_the_gpus_that_tasks_name_at_its_start(monkeypatch):
    said = []
    monkeypatch.setattr(contradictions, "gpus_present", lambda env: 0)
    contradictions.say_contradictions(
        [TaskSpec(name="model", devices=("cuda",))], Settings(), warn=lambda event, **_: said.append(event)
    )
    assert said == ["gpu_missing"]
