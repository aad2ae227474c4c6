"""Turn exceptions of user code into short safe texts: nothing of theirs may break the report."""

import os
import sys
import time
import traceback
from typing import cast

TEXT_LENGTH_MAX = 4_000  # characters kept of a message
TYPE_LENGTH_MAX = 200
GROUP_SHOWN_MAX = 3  # members of an exception group that are named
TRACE_PAUSE_S = 0.05  # least time between two tracebacks in the log
TRACE_DEPTH_MAX = 30
OURS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ""
)  # files of Forebay itself


def safe_text(error: BaseException) -> str:
    """Return what the exception says, cut, with nothing that UTF-8 cannot carry."""
    try:
        text = str(error)
    except BaseException:
        text = "(its text cannot be shown: __str__ raised)"
    if isinstance(error, BaseExceptionGroup):
        members = cast("tuple[BaseException, ...]", error.exceptions)[:GROUP_SHOWN_MAX]
        text += ": " + "; ".join(f"{type_name(member)}: {safe_text(member)[:200]}" for member in members)
    return clean(text, TEXT_LENGTH_MAX)


def type_name(error: BaseException) -> str:
    """Return the name of its class."""
    return clean(type(error).__qualname__, TYPE_LENGTH_MAX)


def clean(text: str, length: int) -> str:
    """Return the text cut to `length` characters, lone surrogates replaced."""
    if len(text) > length:
        text = text[: length - 1] + "…"
    return text.encode("utf-8", "replace").decode("utf-8")


class TraceLog:
    """Writes tracebacks of failed handlers to the captured log, now and then: a flood of failures must
    not spend its time on printing."""

    def __init__(self) -> None:
        self._next = 0.0

    def write(self, error: BaseException) -> None:
        """Print the traceback unless one was printed a moment ago. Never raises."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + TRACE_PAUSE_S
        try:
            trace = traceback.TracebackException(
                type(error), error, error.__traceback__, limit=TRACE_DEPTH_MAX, compact=True
            )
            theirs = (at for at, frame in enumerate(trace.stack) if not frame.filename.startswith(OURS))
            del trace.stack[: next(theirs, 0)]  # how we came to call it helps nobody
            text = clean("".join(trace.format()), TEXT_LENGTH_MAX * 2)
            sys.stderr.write(text)
        except BaseException:  # a closed stderr, a __str__ that raises, no memory: the job's error is told
            return
