"""Logs: one event is one line on stderr, JSON or for a terminal key=value; never a control character."""

import json
import sys
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog

from forebay.observe.lines import LineWriter

REPEAT_S = 60.0  # the same event is logged at most this often by a Seldom
VALUE_LENGTH_MAX = 4_000  # characters of one value
SELDOM_KEYS_MAX = 256
FRAMES_MAX, CAUSES_MAX = 12, 4  # of an exception
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
Record = MutableMapping[str, Any]


def make_log(
    *, now: Callable[[], float], stream: TextIO | None = None, form: str = "auto", level: str = "info"
) -> Any:
    """Return a logger with debug, info, warning, error, exception(event, **fields) and bind(**fields).

    `form` is json, text or auto (text when the stream is a terminal).
    """
    out: TextIO = sys.stderr if stream is None else stream
    text = form == "text" or (form == "auto" and out.isatty())

    def stamped(_: object, method: str, record: Record) -> Record:
        at = datetime.fromtimestamp(now(), UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
        event = record.pop("event", "")
        name = "error" if method == "exception" else method
        return {"at": at, "level": name, "event": event, **{k: _clean(v) for k, v in record.items()}}

    shaped = _as_text if text else _as_json

    def lost(lines: int) -> str:
        return shaped(None, "warning", stamped(None, "warning", {"event": "log_lines_lost", "lines": lines}))

    return structlog.wrap_logger(
        _LineLogger(LineWriter(out, now=now, lost=lost)),
        processors=[
            structlog.processors.format_exc_info if level == "debug" else _where,
            stamped,
            shaped,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        cache_logger_on_first_use=True,
    )


def _where(_: object, __: str, record: Record) -> Record:
    """Say of an exception what it was and where it came from, not what it said: that may quote a payload.
    The level debug shows all of it."""
    if record.pop("exc_info", None):
        error = sys.exception()
        told: list[str] = []
        while error is not None and len(told) < CAUSES_MAX:
            frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
            places = " < ".join(f"{f.filename}:{f.lineno} {f.name}" for f in reversed(frames))
            told.append(f"{type(error).__name__} at {places}")
            error = error.__cause__ or error.__context__
        record["exception"] = "; after ".join(told)
    return record


class Seldom:
    """Lets the same event through at most once per REPEAT_S, and then says how many were held back. Events
    with another `about` are not the same."""

    def __init__(self, log: Any, *, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._seen: dict[str, tuple[float, int]] = {}

    def warning(self, event: str, *, about: str = "", **fields: object) -> None:
        """Log a warning, or count it."""
        self._say("warning", event, about, fields)

    def error(self, event: str, *, about: str = "", **fields: object) -> None:
        """Log an error, or count it."""
        self._say("error", event, about, fields)

    def _say(self, level: str, event: str, about: str, fields: Mapping[str, object]) -> None:
        now, key = self._now(), f"{event} {about}"
        at, held = self._seen.get(key, (float("-inf"), 0))
        if now - at < REPEAT_S:
            self._seen[key] = (at, held + 1)
            return
        if len(self._seen) >= SELDOM_KEYS_MAX:
            self._seen.clear()
        self._seen[key] = (now, 0)
        extra = {"repeated": held} if held else {}
        getattr(self._log, level)(event, **fields, **extra)


class _LineLogger:
    """Writes lines; a stream that is gone, full or not read must not take the service with it."""

    def __init__(self, lines: LineWriter) -> None:
        self._lines = lines

    def msg(self, line: str) -> None:
        self._lines.write(line)

    debug = info = warning = error = exception = critical = log = msg


def _clean(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= VALUE_LENGTH_MAX else value[: VALUE_LENGTH_MAX - 1] + "…"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        items: list[Any] = [*value[:100]]
        return [_clean(item) for item in items]
    return _clean(str(value))


def _as_json(_: object, __: str, record: Record) -> str:
    # ASCII only: escapes every control and direction character whatever the locale of the stream.
    return json.dumps(record, ensure_ascii=True, default=str)


def _as_text(_: object, __: str, record: Record) -> str:
    head = f"{record.pop('at')} {record.pop('level'):<7} {_bare(str(record.pop('event')))}"
    return " ".join((head, *(f"{_bare(key)}={_value(value)}" for key, value in record.items())))


def _value(value: object) -> str:
    if (
        isinstance(value, str)
        and value
        and value.isascii()
        and value.isprintable()
        and not set(value) & set(' "=')
    ):
        return value
    return json.dumps(value, ensure_ascii=True, default=str)


def _bare(text: str) -> str:
    return text if text.isascii() and text.isprintable() else json.dumps(text, ensure_ascii=True)[1:-1]
