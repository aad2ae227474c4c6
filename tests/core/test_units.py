"""Durations, sizes and rates: the spellings that are taken, and one line for all others."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.units import duration_s, print_duration, rate_per_s, size_b


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0), (5, 5.0), (1.5, 1.5), ("0", 0.0), ("250ms", 0.25), ("250 ms", 0.25), (" 5m ", 300.0),
        ("5min", 300.0), ("1.5h", 5400.0), ("6h", 21_600.0), ("2d", 172_800.0), ("10us", 1e-5), ("30", 30.0),
        ("30s", 30.0), ("1e3s", 1000.0), ("1e-3", 0.001), ("5M", 300.0), ("5S", 5.0), ("007s", 7.0),
    ],
)  # fmt: skip
def test_a_duration_is_read(value, expected):
    assert duration_s(value) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0), (1024, 1024), (1.9, 1), ("1KB", 1000), ("1KiB", 1024), ("64MiB", 64 * 2**20), ("1mb", 10**6),
        ("2GB", 2 * 10**9), ("2gib", 2 * 2**30), ("10", 10), ("10b", 10), ("10 B", 10), ("0.5KiB", 512),
    ],
)  # fmt: skip
def test_a_size_is_read(value, expected):
    found = size_b(value)
    assert found == expected
    assert type(found) is int


@pytest.mark.parametrize(
    ("value", "expected"),
    [("300/s", 300.0), ("10/m", 10 / 60), ("10 / min", 10 / 60), ("3600/h", 1.0), (5, 5.0), (0.5, 0.5),
     ("5", 5.0), ("1.5/s", 1.5), ("1000/ms", 1e6)],
)  # fmt: skip
def test_a_rate_is_read(value, expected):
    assert rate_per_s(value) == pytest.approx(expected)


NONSENSE = [
    None, True, False, "", " ", "s", "abc", "5 parsecs", "-5", "-5s", -1, -0.001, "1e400", "1e400s", "nan",
    "inf", "Infinity", math.nan, math.inf, -math.inf, 10**400, -(10**400), "1_000", "0x10", "5s5s", "5,5s",
    "5..5", "٣s",
    [], {}, b"5s", 1j, object(), "9" * 41, "5s\x00", "１s", "+5s", ".5s", "5.s",
]  # fmt: skip


@pytest.mark.parametrize("read", [duration_s, size_b, rate_per_s])
@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: ascii(value).split(" at 0x")[0][:30])
def test_nonsense_is_refused_in_one_line(read, value):
    with pytest.raises(ValueError, match=r".") as refused:
        read(value)
    text = str(refused.value)
    assert "\n" not in text
    assert 5 < len(text) < 200
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("value", [0, "0", "0/s", "5/", "/s", "5/x", "5/s/s", "5/5s", "s/5", "5s/s"])
def test_a_rate_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match="rate"):
        rate_per_s(value)


def test_a_size_is_no_duration_and_the_other_way_round():
    for read, value in ((duration_s, "5MiB"), (size_b, "5s"), (rate_per_s, "5MiB"), (rate_per_s, "5s")):
        with pytest.raises(ValueError, match="is not a"):
            read(value)


@given(st.one_of(st.text(max_size=60), st.floats(), st.integers(), st.none(), st.binary(max_size=9)))
def test_whatever_comes_in_a_number_comes_out_or_a_sentence(value):
    for read in (duration_s, size_b, rate_per_s):
        try:
            found = read(value)
        except ValueError as refused:
            assert len(str(refused)) < 200
        else:
            assert math.isfinite(found)
            assert found >= 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.25, "250 ms"), (0.999, "999 ms"), (1, "1 s"), (41.2, "41 s"), (89.4, "89 s"),
     (90, "2 minutes"), (60 * 5, "5 minutes"), (5399, "90 minutes"),
     (5400, "1.5 h"), (7200, "2.0 h"), (86_400, "24.0 h")],
)  # fmt: skip
def test_a_duration_is_printed_for_people(seconds, text):
    assert print_duration(seconds) == text
