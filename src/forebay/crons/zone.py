"""Timetables of entries: the one place that asks the zones of this machine."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from forebay.core.cron_text import read_cron
from forebay.core.crons import CronEntry
from forebay.core.due import Calendar, Offset, Period, Timetable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING = timedelta()


def timetable_of(entry: CronEntry) -> Timetable:
    """Return when an entry is due. Raises ValueError or ZoneInfoNotFoundError for what was not checked."""
    if entry.every_s is not None:
        return Period(entry.every_s)
    return Calendar(read_cron(entry.cron), offset_of(entry.tz))


def offset_of(tz: str) -> Offset:
    """Return how far local time in a zone is ahead of UTC, in seconds, at an instant."""
    zone = ZoneInfo(tz)

    def offset(at: int) -> int:
        ahead = (_EPOCH + timedelta(seconds=at)).astimezone(zone).utcoffset() or _NOTHING
        return int(ahead.total_seconds())

    return offset
