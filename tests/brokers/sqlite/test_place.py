"""What room is left on the disk is for the ends of what was accepted; a file with room inside need not grow."""

import os

import pytest

from forebay.brokers.sqlite import place
from forebay.brokers.sqlite.place import RESERVE_MAX_B, Place
from forebay.errors import StoreFullError

MB = 1_000_000


class Disk:
    def __init__(self, size_b, free_b):
        self.f_frsize, self.f_blocks, self.f_bavail = 1, size_b, free_b


@pytest.mark.parametrize(
    ("size_b", "free_b", "spare_b", "low"),
    [
        (50 * MB, 11 * MB, 0, False),
        (50 * MB, 9 * MB, 0, True),  # a fifth of a small disk
        (50 * MB, 9 * MB, 10 * MB, True),
        (50 * MB, 9 * MB, 12 * MB, False),  # the file has room for new rows
        (1_000_000 * MB, RESERVE_MAX_B + 1, 0, False),
        (1_000_000 * MB, RESERVE_MAX_B - 1, 0, True),
        (1_000_000 * MB, 0, 3 * RESERVE_MAX_B, False),
    ],
)
def test_new_work_leaves_a_fifth_of_the_disk_or_64_mib(tmp_path, monkeypatch, size_b, free_b, spare_b, low):
    path = tmp_path / "forebay.db"
    path.touch()
    monkeypatch.setattr(place.os, "statvfs", lambda _: Disk(size_b, free_b))
    problem = Place(path, spare_b=lambda: spare_b).problem()
    assert isinstance(problem, StoreFullError) is low
    if low:
        assert problem.retry_after_s == 5.0 and "no new work takes the last" in str(problem)


def test_a_disk_that_says_nothing_is_not_full(tmp_path, monkeypatch):
    path = tmp_path / "forebay.db"
    path.touch()

    def fails(_):
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(place.os, "statvfs", fails)
    assert Place(path).problem() is None
