"""What is to be done about an entry: rows of (mark, now, expected), clocks that jump among them."""

import pytest

from forebay.core.crons import LATE_S, CronEntry, CronMark, Skipped, Turn, begins_at, next_begin, turn
from forebay.core.due import Period

T0 = 1_800_000_000.0  # a multiple of 600
TEN = Period(600)


def entry(**fields):
    return CronEntry(name="e", task="t", every_s=600, **fields)


def mark(due_at, **fields):
    return CronMark("e", "every 600 s", due_at, **fields)


ROWS = [
    ("not due yet", {}, mark(T0), T0 + 599, Turn(None, None, T0 + 600)),
    ("due to the second", {}, mark(T0), T0 + 600, Turn(T0 + 600, None, None)),
    ("a little late", {}, mark(T0), T0 + 601, Turn(T0 + 600, None, None)),
    ("nobody was there for a day: the last one, once", {}, mark(T0 - 86_400), T0 + 599, Turn(T0, None, None)),
    ("and skipped where the entry says so", {"missed": "skip"}, mark(T0 - 86_400), T0 + 599, Turn(T0, Skipped.MISSED, None)),
    ("a restart in the minute of a run is no miss", {"missed": "skip"}, mark(T0 - 600), T0 + LATE_S, Turn(T0, None, None)),
    ("but after it is", {"missed": "skip"}, mark(T0 - 600), T0 + LATE_S + 0.1, Turn(T0, Skipped.MISSED, None)),
    ("dealt with", {}, mark(T0), T0, Turn(None, None, T0 + 600)),
    ("the clock was set back behind the mark", {}, mark(T0), T0 - 3_600, Turn(None, None, T0 + 600)),
    ("paused", {}, mark(T0, paused=True), T0 + 700, Turn(None, None, T0 + 1_200)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "was", "now", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_what_is_to_be_done(fields, was, now, expected):
    assert turn(entry(**fields), TEN, was, now=now) == expected


def test_jitter_puts_a_run_off_within_its_bound_and_the_same_on_every_server():
    jittered = entry(jitter_s=100.0)
    begins = [begins_at(jittered, T0 + 600 * n) - (T0 + 600 * n) for n in range(500)]
    assert all(0 <= late < 100 for late in begins)
    assert max(begins) - min(begins) > 90 and len(set(begins)) > 490
    assert begins_at(jittered, T0) == begins_at(entry(jitter_s=100.0), T0)


def test_a_run_with_jitter_waits_for_its_begin_and_the_one_before_it_is_not_forgotten():
    jittered = entry(jitter_s=100.0)
    begin = begins_at(jittered, T0 + 600)
    assert turn(jittered, TEN, mark(T0), now=begin - 0.01) == Turn(None, None, begin)
    assert next_begin(jittered, TEN, mark(T0), now=begin - 0.01) == begin
    assert turn(jittered, TEN, mark(T0), now=begin) == Turn(T0 + 600, None, None)
    assert turn(jittered, TEN, mark(T0 - 600), now=begin - 0.01) == Turn(T0, None, None)
    done = turn(jittered, TEN, mark(T0 + 600), now=T0 + 600)
    assert done == Turn(None, None, begins_at(jittered, T0 + 1_200))


def test_the_next_run_of_a_paused_entry_is_never():
    assert next_begin(entry(), TEN, mark(T0, paused=True), now=T0) is None
    assert next_begin(entry(), TEN, mark(T0), now=T0) == T0 + 600
