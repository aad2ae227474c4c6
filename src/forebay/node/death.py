"""Name how a child died: exit code, signal, out of memory, or by our own hand."""

import signal
from dataclasses import dataclass
from pathlib import Path

from forebay.host.cgroups import ROOT, groups_of
from forebay.host.processors import oom_kills


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How a child ended. `code` is for programs, `message` one sentence for people."""

    code: str  # "exit", "signal", "oom", "killed", "load_failed", "import_failed", "stopped"
    message: str
    exit_code: int | None = None
    signal_name: str = ""
    killed_for: str = ""  # our reason when we killed it
    tag: int | None = None  # the item that ran alone in it then, when that is known
    idle: bool = False  # no user code ran in it then: whatever it had been sent is not to blame
    arrived: int | None = None  # the last run that it had taken in; those behind it cannot have begun
    was_ready: bool = True
    log_tail: tuple[str, ...] = ()


def name_death(
    returncode: int, *, killed_for: str, stopping: bool, oom_kills: int, load_failure: tuple[str, str] | None
) -> tuple[str, str, str]:
    """Return (code, message, signal name) for a return code as subprocess gives it."""
    if load_failure is not None:
        return (*load_failure, "")
    if returncode >= 0:
        if stopping and returncode == 0:
            return "stopped", "the worker process stopped as it was told", ""
        return "exit", f"the worker process ended itself with exit code {returncode}", ""
    name = signal_name(-returncode)
    if killed_for:
        return "killed", f"the worker process was killed ({killed_for})", name
    if -returncode == signal.SIGKILL:
        if oom_kills > 0:
            return "oom", "the worker process was killed for using too much memory (out of memory)", name
        return "signal", "the worker process was killed (SIGKILL), maybe out of memory", name
    return "signal", f"the worker process died by {name}", name


def signal_name(number: int) -> str:
    """Return "SIGSEGV" for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class OomCounter:
    """Counts out-of-memory kills in this process's cgroup, version 1 or 2; always 0 where it cannot see."""

    def __init__(self, root: Path = ROOT) -> None:
        self._groups = groups_of("memory", root=root)
        self._seen = self._read()

    def new_kills(self) -> int:
        """Return the kills since the last call."""
        now = self._read()
        fresh, self._seen = max(0, now - self._seen), now
        return fresh

    def _read(self) -> int:
        return oom_kills(self._groups) or 0
