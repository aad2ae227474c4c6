"""When entries are due: periods from the epoch, and local times where clocks jump ahead and fall back."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.cron_text import read_cron
from forebay.core.due import Calendar, Period, civil

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def offset(tz):
    zone = ZoneInfo(tz)
    return lambda at: int((EPOCH + timedelta(seconds=at)).astimezone(zone).utcoffset().total_seconds())


def calendar(text, tz="UTC"):
    return Calendar(read_cron(text), offset(tz))


def at(text):
    return datetime.fromisoformat(text).timestamp()


def told(instant):
    return datetime.fromtimestamp(instant, UTC).strftime("%m-%d %H:%M")


def run_of(text, tz, begin, count):
    """Return the first due instants after `begin`, as UTC."""
    table, now, found = calendar(text, tz), at(begin), []
    for _ in range(count):
        now = table.next_after(now)
        found.append(told(now))
    return found


def test_a_period_is_counted_from_the_epoch_so_that_a_restart_changes_nothing():
    quarter = Period(900)
    assert quarter.next_after(at("2026-03-01T10:07:00Z")) == at("2026-03-01T10:15:00Z")
    assert quarter.next_after(at("2026-03-01T10:15:00Z")) == at("2026-03-01T10:30:00Z")
    assert quarter.latest(at("2026-03-01T10:15:00Z")) == at("2026-03-01T10:15:00Z")
    assert quarter.latest(at("2026-03-01T10:14:59.9Z")) == at("2026-03-01T10:00:00Z")


def test_a_time_of_day_in_a_zone():
    assert run_of("0 3 * * *", "Europe/Berlin", "2026-01-05T00:00:00Z", 2) == ["01-05 02:00", "01-06 02:00"]
    assert run_of("0 3 * * *", "Europe/Berlin", "2026-07-05T00:00:00Z", 1) == ["07-05 01:00"]
    assert run_of("30 4 * * *", "Asia/Kathmandu", "2026-07-05T00:00:00Z", 1) == ["07-05 22:45"]


def test_a_time_of_day_that_the_gap_leaves_out_is_due_at_its_end():
    # Berlin, 29 March 2026: at 01:00 UTC local time goes from 02:00 to 03:00.
    days = run_of("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3)
    assert days == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]
    assert run_of("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2) == [
        "03-29 01:00",
        "03-30 00:00",
    ]
    assert run_of("0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2) == ["03-29 01:00", "03-30 01:00"]


def test_a_time_of_day_that_the_fold_brings_twice_is_due_once():
    # Berlin, 25 October 2026: at 01:00 UTC local time goes from 03:00 back to 02:00.
    days = run_of("30 2 * * *", "Europe/Berlin", "2026-10-23T12:00:00Z", 3)
    assert days == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]


def test_by_the_hour_it_goes_on_through_gap_and_fold():
    fold = run_of("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z", 6)
    assert fold == ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00", "10-25 02:30"]
    gap = run_of("30 * * * *", "Europe/Berlin", "2026-03-28T23:45:00Z", 3)
    assert gap == ["03-29 00:30", "03-29 01:30", "03-29 02:30"]


def test_a_gap_at_midnight_and_a_day_that_never_was():
    # Santiago goes from 00:00 to 01:00; Apia left out 30 December 2011.
    assert run_of("0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", 2) == [
        "09-06 04:00",
        "09-07 03:00",
    ]
    assert run_of("0 12 30 * *", "Pacific/Apia", "2011-12-01T00:00:00Z", 2) == ["12-30 10:00", "01-29 22:00"]


def test_half_an_hour_of_fold_is_enough():
    # Lord Howe falls back from 02:00 to 01:30.
    assert run_of("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", 2) == [
        "04-04 14:45",
        "04-05 15:15",
    ]


def test_a_leap_day_is_found_years_ahead():
    assert calendar("0 0 29 2 *").next_after(at("2096-03-01T00:00:00Z")) == at("2104-02-29T00:00:00Z")
    assert calendar("0 0 29 2 *").latest(at("2104-02-28T00:00:00Z")) == at("2096-02-29T00:00:00Z")


@given(st.integers(-200_000, 400_000))
def test_the_days_of_the_calendar_are_those_of_the_standard_library(day):
    date = (EPOCH + timedelta(days=day)).date()
    assert civil(day) == (date.year, date.month, date.day)


ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/St_Johns",
)
TEXTS = (
    "*/20 * * * *",
    "15 2 * * *",
    "0 0 1 * *",
    "30 1,2,3 * * sun",
    "59 23 28-31 * *",
    "*/7 2 * 3,10,11 *",
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TEXTS), st.sampled_from(ZONES), st.integers(1_700_000_000, 1_900_000_000))
def test_forwards_and_backwards_are_the_same_instants(text, tz, begin):
    table = calendar(text, tz)
    later = table.next_after(begin)
    assert later > begin and later % 60 == 0
    assert table.latest(later) == later
    before = table.latest(later - 1)
    assert before <= begin and table.next_after(before) == later


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(TEXTS), st.sampled_from(ZONES), st.integers(1_700_000_000, 1_900_000_000))
def test_each_instant_outside_a_jump_has_the_local_time_that_the_text_names(text, tz, begin):
    named, ahead = read_cron(text), offset(tz)
    due = int(calendar(text, tz).next_after(begin))
    if ahead(due - 3 * 3600) == ahead(due + 3 * 3600):
        local = datetime.fromtimestamp(due, ZoneInfo(tz))
        assert local.minute in named.minutes and local.hour in named.hours
        assert named.has_day(local.month, local.day, (local.weekday() + 1) % 7)
