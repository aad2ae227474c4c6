"""@app.every: check the arguments of a cron entry, and let a function without parameters be one."""

import inspect
import json
from collections.abc import Callable
from typing import Any, Final

from forebay.core.cron_text import CronText, read_cron
from forebay.core.crons import MISSED, CronEntry
from forebay.core.tenant import TENANT, TENANT_RULE
from forebay.declare.options import Reader, refuse
from forebay.errors import AppError

JITTER_MAX_S = 3_600.0
PAYLOAD_BYTES_MAX = 256 * 1024


class _Unsaid(str):
    """A text that nobody has given: an empty one is a mistake."""


UNSAID: Final = _Unsaid()


def read_entry(name: str, given: dict[str, Any]) -> CronEntry:
    """Return the entry, its task still unnamed. Raises AppError with one sentence naming the argument."""
    read = Reader(f"cron entry {name}")
    every_s, text = _when(read, given)
    gap_s = every_s if every_s is not None else text.gap_least_s if text is not None else 0
    jitter_s = read.seconds("jitter", given["jitter"], positive=False)
    if jitter_s > JITTER_MAX_S or (jitter_s and jitter_s >= gap_s):
        rule = f"less than the time between two runs ({gap_s} s), and at most 1 h"
        raise refuse(read.where, "jitter", rule, given["jitter"])
    return CronEntry(
        name=name,
        task="",
        payload=_payload(read, given["payload"]),
        every_s=every_s,
        cron=given["cron"] or "",
        tz=_zone(read, given["tz"], every_s is not None),
        priority=None if given["priority"] is None else read.priority(given["priority"]),
        tenant=_tenant(read, given["tenant"]),
        missed=read.choice("missed", given["missed"], MISSED),
        overlap=read.flag("overlap", given["overlap"]),
        jitter_s=jitter_s,
    )


def _when(read: Reader, given: dict[str, Any]) -> tuple[int | None, CronText | None]:
    period, cron = given["period"], given["cron"]
    if (period is None) == (cron is None):
        raise AppError(f'{read.where}: give either a period, as in @app.every("15m"), or cron="0 3 * * *"')
    if cron is not None:
        if not isinstance(cron, str):
            raise refuse(read.where, "cron", "a text of five fields", cron)
        try:
            return None, read_cron(cron)
        except ValueError as error:
            raise AppError(f"{read.where}: cron: {error}") from None
    seconds = read.seconds("period", period)
    if seconds < 1 or seconds != int(seconds):
        raise refuse(read.where, "period", "whole seconds, at least 1", period)
    return int(seconds), None


def _zone(read: Reader, tz: object, by_period: bool) -> str:
    if tz is None:
        return "UTC"
    if by_period:
        raise refuse(read.where, "tz", "left out where a period is given (only cron has times of day)", tz)
    from zoneinfo import ZoneInfo  # children that have no entries do without

    try:
        if not isinstance(tz, str):
            raise TypeError
        ZoneInfo(tz)
    except Exception:
        rule = 'a time zone that this machine knows, like "Europe/Berlin" (package tzdata)'
        raise refuse(read.where, "tz", rule, tz) from None
    return tz


def _payload(read: Reader, payload: object) -> bytes:
    try:
        text = json.dumps(payload, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        raise refuse(read.where, "payload", "a JSON value", payload) from None
    if len(text) > PAYLOAD_BYTES_MAX:
        raise AppError(
            f"{read.where}: payload must be at most {PAYLOAD_BYTES_MAX:,} bytes, not {len(text):,}"
        )
    return text


def _tenant(read: Reader, value: object) -> str:
    if value is UNSAID:
        return ""
    if not isinstance(value, str) or TENANT.fullmatch(value) is None:
        raise refuse(read.where, "tenant", TENANT_RULE, value)
    return value


def taking_one(target: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler of one payload, null, for a function without parameters; others as they are."""
    if inspect.isclass(target) or inspect.signature(target).parameters:
        return target

    async def later(_: None) -> Any:
        return await target()

    def at_once(_: None) -> Any:
        return target()

    handler = later if inspect.iscoroutinefunction(target) else at_once
    handler.__name__, handler.__qualname__ = target.__name__, target.__qualname__
    handler.__module__, handler.__doc__ = target.__module__, target.__doc__
    return handler
