"""Subject, StandingClock, subject_named: an engine as the checks get it, ours or somebody else's."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from forebay.conformance.fixtures import T0
from forebay.conformance.suite import Reopen
from forebay.errors import ConfigError
from forebay.ports.broker import Broker

# Why a check does not apply to an engine, by the ability that the check needs.
LACKS: Final = {
    "durable": "what it answered is not kept when its process dies",
    "ordered": "it does not keep the exact order of leases",
    "given_time": "it goes by the clock of its server, which no check can move",
    "owned": "several processes may share its store, so none of them owns what runs",
    "reopen": "there is no way to open its store again",
}


class Subject(Protocol):
    """An engine under check. Whatever it makes is in a place of its own, and `remove` takes it away again."""

    @property
    def reopen(self) -> Reopen | None:
        """How it ends and comes back on the same store; None when it keeps nothing."""
        ...

    async def open(self) -> Broker:
        """Return it on a new and empty store, with fixtures.RETENTION_S, its clock standing at fixtures.T0.

        Raises ForebayError with one line when its server cannot be used.
        """
        ...

    async def remove(self) -> None:
        """Remove all stores this one made. Called once, at the end, whatever happened."""
        ...


class StandingClock:
    """A clock that stands where it was set. Nobody may sleep by it."""

    def __init__(self, at: float = T0) -> None:
        self.at = at

    def now(self) -> float:
        """Return the instant it stands at."""
        return self.at

    def random(self) -> float:
        """Return always the same number."""
        return 0.5

    async def sleep(self, seconds: float) -> None:
        """Raise AssertionError: the verbs of an engine do not wait."""
        raise AssertionError("an engine under check must not sleep")


def subject_named(name: str, url: str) -> Subject:
    """Return what `module:factory` makes of a URL. Runs that module's code in this process.

    Raises ConfigError with one line when there is no such thing, or it is no Subject.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"--engine {name!r}: write module:factory")
    if os.getcwd() not in sys.path:  # as for an App: a module beside you is found
        sys.path.insert(0, os.getcwd())
    try:
        factory: Callable[[str], Any] = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ConfigError(f"--engine {name!r}: cannot import {module}: {error}") from None
    except AttributeError:
        raise ConfigError(f"--engine {name!r}: {module} has no {attribute!r}") from None
    made: Any = factory(url)
    missing = [part for part in ("open", "remove", "reopen") if not hasattr(made, part)]
    if missing:
        raise ConfigError(f"--engine {name!r}: what it makes has no {missing[0]!r}")
    subject: Subject = made
    return subject
