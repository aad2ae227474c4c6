"""Numbers as short texts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.sizing import words
from forebay.core.units import duration_s


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00025, "0.25 ms"), (0.0021, "2.1 ms"), (0.2, "200 ms"), (1.5, "1.5 s"), (60, "60 s"), (600, "10 min"),
     (6_000, "100 min"), (86_400, "24 h"), (math.inf, "for ever"), (0, "0 ms")],
)  # fmt: skip
def test_spans(seconds, text):
    assert words.span(seconds) == text


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (60, "60/s"),
        (307.69, "307.7/s"),
        (10_000, "10,000/s"),
        (1 / 6, "10/min"),
        (12_345.6, "12,346/s"),
        (0, "0/s"),
    ],
)
def test_rates(per_s, text):
    assert words.rate(per_s) == text


@pytest.mark.parametrize(
    ("size_b", "text"),
    [(80, "80 B"), (1_000, "1 KB"), (12_000_000, "12 MB"), (720e6, "720 MB"), (1.87e9, "1.87 GB")],
)
def test_sizes(size_b, text):
    assert words.size(size_b) == text


def test_counts_and_shares():
    assert [words.count(n) for n in (12.0, 0.5, 12_000)] == ["12", "0.5", "12,000"]
    assert [words.share(n) for n in (0.6, 2 / 3, 0.005)] == ["60 %", "66.7 %", "0.5 %"]


@given(st.floats(0.001, 1e6))
def test_a_duration_for_a_setting_is_read_back_and_never_less(seconds):
    again = duration_s(words.setting_s(seconds))
    assert seconds * (1 - 1e-6) <= again <= seconds * 1.11 + 1e-3
