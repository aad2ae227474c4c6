"""What in the settings contradicts is told once, however many tasks it is true of."""

from collections import namedtuple

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
