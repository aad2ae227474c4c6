"""Read a cron text of five fields into the sets of minutes, hours, days and months that it names.

Ours and no library's: fewer lines than it takes to bend its errors into a sentence that names the field,
and the instants (core/due) have to say what becomes of a jump anyway.
"""

from dataclasses import dataclass
from typing import Final

MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LENGTH_MAX: Final = 200
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # days of each month, in a leap year


@dataclass(frozen=True, slots=True, kw_only=True)
class CronText:
    """What a cron text names. `weekdays` are 0 (Sunday) to 6."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    every_hour: bool  # the hour is `*`: it runs by the hour, not at a time of day
    either_day: bool  # both kinds of day are named: one of the two is enough, as cron has it

    def has_day(self, month: int, day: int, weekday: int) -> bool:
        """Say whether it runs on a day of the calendar."""
        if month not in self.months:
            return False
        if self.either_day:
            return day in self.days or weekday in self.weekdays
        return day in self.days and weekday in self.weekdays

    @property
    def gap_least_s(self) -> int:
        """The least time between two of its minutes, in seconds, as far as the minute field tells."""
        turns = zip(self.minutes, (*self.minutes[1:], self.minutes[0] + 60), strict=True)
        return min(after - before for before, after in turns) * 60


def read_cron(text: str) -> CronText:
    """Return what a text such as "*/15 8-18 * * mon-fri" names.

    Minute, hour, day of the month, month, day of the week; in each `*`, numbers, names of three letters,
    ranges, steps and lists. Raises ValueError with one sentence that names the field, its rule and its text.
    """
    words = MACROS.get(text.strip().lower(), text).split() if len(text) <= LENGTH_MAX else []
    if len(words) != 5:
        known = ", ".join(MACROS)
        raise ValueError(
            "must have five fields (minute, hour, day of the month, month, day of the week)"
            f" or be one of {known}, not {text[:60]!r}"
        )
    minutes = _field("minute", words[0], 0, 59)
    hours = _field("hour", words[1], 0, 23)
    days = _field("day of the month", words[2], 1, 31)
    months = _field("month", words[3], 1, 12, _MONTHS, 1)
    weekdays = _field("day of the week", words[4], 0, 7, _WEEKDAYS, 0)
    found = CronText(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(number % 7 for number in weekdays),
        every_hour=len(hours) == 24,
        either_day=not words[2].startswith("*") and not words[4].startswith("*"),
    )
    if not found.either_day and all(min(days) > _LONGEST[month - 1] for month in months):
        raise ValueError(f"day of the month must come in the month, and {words[2]} of {words[3]} never does")
    return found


def _field(
    name: str, text: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0
) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text) if slash else 1
        if step is None or not 1 <= step <= high:
            raise _wrong(name, f"a step from 1 to {high}", part)
        begin, dash, end = span.partition("-")
        if span == "*":
            numbers = range(low, high + 1)
        else:
            start = _value(begin, names, first)
            stop = _value(end, names, first) if dash else high if slash else start
            if start is None or stop is None or not low <= start <= high or not low <= stop <= high:
                words = f" or {names[0]} to {names[-1]}" if names else ""
                raise _wrong(name, f"from {low} to {high}{words}", part)
            if start > stop:
                raise _wrong(name, "a range that goes up", part)
            numbers = range(start, stop + 1)
        found.update(numbers[::step])
    return found


def _wrong(name: str, rule: str, part: str) -> ValueError:
    return ValueError(f"{name} must be {rule}, not {part[:40]!r}")


def _value(text: str, names: tuple[str, ...], first: int) -> int | None:
    lower = text.lower()
    return names.index(lower) + first if lower in names else _number(text)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else None
