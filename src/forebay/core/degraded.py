"""Degraded: how far a result stands below what was asked for: a number in its record, and its word."""

from typing import Final

FULL: Final = 0  # the task itself made it
FALLBACK: Final = 15  # the fallback did, while the task's breaker was open
LEVEL_MAX: Final = 15  # engines keep four bits


def level_word(level: int) -> str | None:
    """Return the word for a level as answers and metrics show it; None for FULL."""
    if level == FULL:
        return None
    return "fallback" if level == FALLBACK else f"variant_{level}"
