"""Asked: the flags of a command as texts, read with the sentence that names flag, rule and value."""

from collections.abc import Iterable, Mapping

from forebay.cli.options import rate_of, seconds_of
from forebay.cli.show import Stop
from forebay.core.units import size_b


class Asked:
    """The flags as they were given, read on demand. Each reader raises Stop naming flag, rule and value."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def text(self, name: str) -> str | None:
        """Return a flag as it is."""
        return self.given.get(name)

    def has(self, *names: str) -> list[str]:
        """Return which of these flags were given, as they are typed."""
        return [flag_of(name) for name in names if name in self.given]

    def only(self, names: Iterable[str], where: str) -> None:
        """Raise Stop when a flag was given that says nothing `where` others are asked."""
        other = [flag_of(name) for name in self.given if name not in set(names)]
        if other:
            raise Stop(f"{', '.join(other)}: not together with {where}", 2)

    def rate(self, name: str) -> float | None:
        """Return a rate per second."""
        text = self.given.get(name)
        return None if text is None else rate_of(text, flag_of(name))

    def seconds(self, name: str, *, zero: bool = False) -> float | None:
        """Return seconds: more than none, unless `zero`."""
        text = self.given.get(name)
        if text is None:
            return None
        found = seconds_of(flag_of(name), text)
        if found == 0 and not zero:
            raise Stop(f"{flag_of(name)}: {text!r} is not more than 0", 2)
        return found

    def several(self, name: str) -> tuple[float, ...]:
        """Return durations with commas between them."""
        text = self.given.get(name)
        if text is None:
            return ()
        return tuple(seconds_of(flag_of(name), part.strip()) for part in text.split(",", 1000))

    def bytes(self, name: str) -> int | None:
        """Return bytes, at least one."""
        text = self.given.get(name)
        if text is None:
            return None
        try:
            found = size_b(text)
        except ValueError as error:
            raise Stop(f"{flag_of(name)}: {error}", 2) from None
        if found < 1:
            raise Stop(f"{flag_of(name)}: {text!r} is not more than 0", 2)
        return found

    def count(self, name: str, most: int = 1_000_000_000) -> int | None:
        """Return a whole number from 1."""
        text = self.given.get(name)
        if text is None:
            return None
        whole = text.isascii() and text.isdecimal() and len(text) < 12
        if not whole or not 1 <= int(text) <= most:
            raise Stop(f"{flag_of(name)}: {text!r} is not a whole number from 1 to {most:,}", 2)
        return int(text)

    def number(self, name: str, low: float, high: float) -> float | None:
        """Return a number between two others, both left out."""
        text = self.given.get(name)
        if text is None:
            return None
        try:
            found = float(text)
        except ValueError:
            found = low
        if not low < found < high:
            raise Stop(f"{flag_of(name)}: {text!r} is not a number between {low:g} and {high:g}", 2)
        return found


def flag_of(name: str) -> str:
    """Return a flag as it is typed."""
    return f"--{name.strip('_').replace('_', '-')}"
