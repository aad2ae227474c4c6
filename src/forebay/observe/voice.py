"""Voice: the few words of a server about itself, beside its log and in the log's form."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from forebay.observe.lines import LineWriter
from forebay.observe.logs import make_log


class Voice:
    """Says on standard error that it serves, drains or cannot start, whatever the level of the log.

    Where the log was asked to be JSON these are lines of it, so that a reader of JSON meets nothing else;
    otherwise each is a line for people.
    """

    def __init__(self, form: str, *, now: Callable[[], float]) -> None:
        self._log: Any = make_log(now=now, form="json") if form == "json" else None
        self._now = now

    def say(self, text: str, event: str, **fields: object) -> None:
        """Say how it is: `text` to people, `event` with its fields to programs. Never raises OSError."""
        if self._log is not None:
            self._log.info(event, **fields)
            return
        with contextlib.closing(LineWriter(sys.stderr, now=self._now)) as lines:
            lines.write(text)


def banner(facts: Mapping[str, Any]) -> str:
    """Return the line that says a server serves, from its facts."""
    admin = f"admin: {facts['admin_url']}  " if "admin_url" in facts else ""
    return (
        f"forebay {facts['version']}: {facts['url']}  {admin}tasks: {', '.join(facts['tasks'])}  "
        f"replicas: {facts['replicas']}  data: {facts['data']}"
    )
