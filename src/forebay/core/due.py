"""Due: the instants at which a period or a cron text is due; the zone comes in as a function."""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final, Protocol

from forebay.core.cron_text import CronText

DAY_S: Final = 86_400
DAYS_MAX: Final = 9 * 366  # looked through for one date: 29 February is at most eight years away
Offset = Callable[[int], int]  # seconds that local time is ahead of UTC, at an instant


class Timetable(Protocol):
    """Instants in whole seconds since the epoch, in order. The same question has the same answer always."""

    def next_after(self, at: float) -> float | None:
        """Return the first instant after `at`, None when none is near."""
        ...

    def latest(self, at: float) -> float | None:
        """Return the last instant not after `at`, None when none is near."""
        ...


class Period:
    """Every so many whole seconds, counted from the epoch, so that a restart changes nothing."""

    def __init__(self, period_s: int) -> None:
        self._period_s = period_s

    def next_after(self, at: float) -> float:
        """Return the first multiple of the period after `at`."""
        return float((at // self._period_s + 1) * self._period_s)

    def latest(self, at: float) -> float:
        """Return the last multiple of the period not after `at`."""
        return float(at // self._period_s * self._period_s)


class Calendar:
    """The minutes that a cron text names in a zone.

    Where local time jumps ahead, a time of day that does not exist is due at the end of the jump; where it
    falls back, a time of day is due the first time it comes. A text whose hour is `*` goes by the hour and
    runs on as if nothing had happened. Not promised: a zone that changes twice within two days.
    """

    def __init__(self, text: CronText, offset: Offset) -> None:
        self._text = text
        self._offset = offset

    def next_after(self, at: float) -> float | None:
        """Return the first due instant after `at`, None when none comes within DAYS_MAX days."""
        first = self._day_of(at) - 1
        for day in range(first, first + DAYS_MAX):
            if self._has(day):
                found = self._instants(day)
                place = bisect_right(found, at)
                if place < len(found):
                    return float(found[place])
        return None

    def latest(self, at: float) -> float | None:
        """Return the last due instant not after `at`, None when none was within DAYS_MAX days."""
        last = self._day_of(at) + 1
        for day in range(last, last - DAYS_MAX, -1):
            if self._has(day):
                found = self._instants(day)
                place = bisect_right(found, at)
                if place:
                    return float(found[place - 1])
        return None

    def _day_of(self, at: float) -> int:
        whole = int(at // 1)
        return (whole + self._offset(whole)) // DAY_S

    def _has(self, day: int) -> bool:
        _, month, number = civil(day)
        return self._text.has_day(month, number, (day + 4) % 7)

    def _instants(self, day: int) -> list[int]:
        """Return the due instants of one local day, in order."""
        start = day * DAY_S
        walls = [
            start + hour * 3600 + minute * 60 for hour in self._text.hours for minute in self._text.minutes
        ]
        before, after = self._offset(start - DAY_S), self._offset(start + 2 * DAY_S)
        if before == after:
            return [wall - before for wall in walls]
        change = self._change(start - DAY_S, start + 2 * DAY_S, before)
        found: set[int] = set()
        for wall in walls:
            old, new = wall - before, wall - after  # the instant by either offset
            if old < change:
                found.add(old)
                if new >= change and self._text.every_hour:
                    found.add(new)
            elif new >= change or not self._text.every_hour:
                found.add(max(new, change))
        return sorted(found)

    def _change(self, low: int, high: int, before: int) -> int:
        """Return the first instant with another offset than `before`."""
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == before:
                low = middle
            else:
                high = middle
        return high


def civil(day: int) -> tuple[int, int, int]:
    """Return year, month and day of the month of a day counted from 1970-01-01, in the Gregorian calendar."""
    shifted = day + 719_468  # days since 0000-03-01: the leap day is the last of its year
    era, rest = divmod(shifted, 146_097)
    year_of_era = (rest - rest // 1_460 + rest // 36_524 - rest // 146_096) // 365
    day_of_year = rest - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (month <= 2)
    return year, month, day_of_year - (153 * shifted_month + 2) // 5 + 1
