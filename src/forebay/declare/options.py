"""Check the arguments of @app.task: numbers with units, one clear sentence for each mistake."""

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TypeGuard, cast
from urllib.parse import urlsplit

from forebay.core.codel import Discipline
from forebay.core.job import PRIORITY_HIGH, PRIORITY_LEAST, PRIORITY_LOW, PRIORITY_NORMAL
from forebay.core.retry import RetryPolicy
from forebay.core.turns import Order
from forebay.core.units import duration_s, size_b
from forebay.errors import AppError

PRIORITIES = {"high": PRIORITY_HIGH, "normal": PRIORITY_NORMAL, "low": PRIORITY_LOW}
DURATION_MAX_S = 366 * 86_400.0
COUNT_MAX = 10_000_000
BATCH_MAX = 65_536
Exceptions = tuple[type[BaseException], ...]


def shown(value: object) -> str:
    """Return the value as a short text for a message."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def refuse(where: str, argument: str, rule: str, value: object) -> AppError:
    """Return the one sentence for a wrong argument."""
    return AppError(f"{where}: {argument} must be {rule}, not {shown(value)}")


class Reader:
    """Reads the arguments of one task and raises AppError naming argument, rule and value."""

    def __init__(self, where: str) -> None:
        self.where = where

    def count(self, argument: str, value: object, *, least: int = 1, most: int = COUNT_MAX) -> int:
        """Return a whole number within bounds."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise refuse(self.where, argument, f"a whole number from {least} to {most:,}", value)
        return value

    def count_or_none(self, argument: str, value: object, *, most: int = COUNT_MAX) -> int | None:
        """Return a whole number within bounds, or None."""
        return None if value is None else self.count(argument, value, most=most)

    def range_or_none(self, argument: str, value: object, *, most: int) -> tuple[int | None, int | None]:
        """Return the least and the most of a range like "1..4"; of one number no least; of None neither."""
        if not isinstance(value, str):
            return None, self.count_or_none(argument, value, most=most)
        low, dots, high = value.partition("..")
        numbers = [int(part) for part in (low, high) if re.fullmatch(r"[1-9][0-9]{0,8}", part, re.ASCII)]
        if not dots or len(numbers) != 2 or not numbers[0] <= numbers[1] <= most:
            rule = f'a whole number from 1 to {most:,}, or a range of them like "1..4"'
            raise refuse(self.where, argument, rule, value)
        return (numbers[0] if numbers[0] < numbers[1] else None), numbers[1]

    def size_or_none(self, argument: str, value: object) -> int | None:
        """Return bytes, or None."""
        return None if value is None else self.size(argument, value)

    def seconds(self, argument: str, value: object, *, positive: bool = True) -> float:
        """Return seconds from a number or a text like "5m"."""
        rule = 'a duration above 0: seconds or a text like "250ms", "5m"'
        if not positive:
            rule = 'a duration: seconds or a text like "250ms", "5m"'
        try:
            seconds = duration_s(value)
        except ValueError:
            raise refuse(self.where, argument, rule, value) from None
        if (positive and seconds == 0) or seconds > DURATION_MAX_S:
            raise refuse(self.where, argument, rule + ", at most 366 days", value)
        return seconds

    def size(self, argument: str, value: object) -> int:
        """Return bytes from a number or a text like "1GiB"."""
        try:
            size = size_b(value)
        except ValueError:
            size = 0
        if size < 1:
            raise refuse(self.where, argument, 'a size above 0: bytes or a text like "64MiB"', value)
        return size

    def priority(self, value: object) -> int:
        """Return 0 (most urgent) to 9."""
        if isinstance(value, str) and value in PRIORITIES:
            return PRIORITIES[value]
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PRIORITY_LEAST:
            return value
        raise refuse(self.where, "priority", '"high", "normal", "low" or a whole number from 0 to 9', value)

    def share(self, argument: str, value: object) -> float:
        """Return a share from 0 to less than 1."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
            return float(value)
        raise refuse(self.where, argument, "a share from 0 to less than 1, such as 0.25", value)

    def order(self, value: object) -> Order:
        """Return what the order inside a priority goes by."""
        for order in Order:
            if value == order.value:
                return order
        raise refuse(self.where, "order", '"arrival" or "deadline"', value)

    def discipline(self, value: object) -> Discipline:
        """Return how requests wait once there are more than can be done."""
        for discipline in Discipline:
            if value == discipline.value:
                return discipline
        raise refuse(self.where, "discipline", '"deadline", "newest" or "codel"', value)

    def backoff(self, value: object) -> RetryPolicy:
        """Return the policy for None (the default), a first wait, or a RetryPolicy."""
        if value is None:
            return RetryPolicy()
        if isinstance(value, RetryPolicy):
            return value
        return RetryPolicy(base_s=self.seconds("backoff", value, positive=False))

    def exceptions(self, argument: str, value: object) -> Exceptions:
        """Return exception classes from one class or several."""
        several = isinstance(value, list | tuple | set | frozenset)
        classes = cast("tuple[object, ...]", value if several else (value,))
        found: list[type[BaseException]] = []
        for one in classes:
            if not _is_exception_class(one):
                raise refuse(self.where, argument, "exception classes", one)
            found.append(one)
        return tuple(found)

    def devices(self, value: object) -> tuple[str, ...] | None:
        """Return device names from None, one name or several."""
        if value is None:
            return None
        rule = '"cpu", "cuda", "cuda:0" or a list of them'
        several = isinstance(value, list | tuple)
        names = cast("list[object]", value if several else [value])
        if not names:
            raise refuse(self.where, "devices", rule, value)
        for name in names:
            if not _is_device(name):
                raise refuse(self.where, "devices", rule, name)
        return tuple(str(name) for name in names)

    def version(self, value: object) -> str:
        """Return the version as a short text."""
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if not text or len(text) > 64 or not text.isprintable():
            raise refuse(self.where, "version", "a text of 1 to 64 printable characters", value)
        return text

    def choice(self, argument: str, value: object, choices: tuple[str, ...]) -> str:
        """Return one of a few words."""
        if not isinstance(value, str) or value not in choices:
            rule = ", ".join(f'"{choice}"' for choice in choices[:-1]) + f' or "{choices[-1]}"'
            raise refuse(self.where, argument, rule, value)
        return value

    def clock(self, value: Callable[[], float]) -> Callable[[], float]:
        """Return a function that tells seconds; it is asked once."""
        try:
            told: object = value()
        except Exception:
            told = None
        if isinstance(told, bool) or not isinstance(told, int | float):
            raise refuse(self.where, "clock", "a function without parameters that returns seconds", value)
        return value

    def url(self, argument: str, value: object) -> str:
        """Return where an HTTP server answers. What may hold a password is not shown again."""
        rule = "an http:// or https:// URL with a host, without user, password and fragment"
        text = value if isinstance(value, str) and value.isascii() and value.isprintable() else ""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise refuse(self.where, argument, rule, value) from None
        plain = parts.username is None and parts.password is None and not parts.fragment and " " not in text
        if parts.scheme not in {"http", "https"} or not parts.hostname or not plain or port == 0:
            raise refuse(self.where, argument, rule, value if plain else "(not shown)")
        return text

    def flag(self, argument: str, value: object) -> bool:
        """Return True or False."""
        if not isinstance(value, bool):
            raise refuse(self.where, argument, "True or False", value)
        return value


def _is_exception_class(value: object) -> TypeGuard[type[BaseException]]:
    return isinstance(value, type) and issubclass(cast("type[object]", value), BaseException)


def _is_device(name: object) -> bool:
    if not isinstance(name, str):
        return False
    return name in ("cpu", "cuda") or (name.startswith("cuda:") and name[5:].isdecimal())


def refuse_unknown(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise AppError for the first argument that does not exist, with the nearest one that does."""
    names = list(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise AppError(f"{where}: there is no argument {name}{hint}")
