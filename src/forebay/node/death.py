"""Name how a child died: exit code, signal, out of memory, or by our own hand."""

import signal
from dataclasses import dataclass
from pathlib import Path


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

    def __init__(
        self, root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
    ) -> None:
        self._file = _find(root, membership)
        self._seen = self._read()

    def new_kills(self) -> int:
        """Return the kills since the last call."""
        now = self._read()
        fresh, self._seen = max(0, now - self._seen), now
        return fresh

    def _read(self) -> int:
        if self._file is None:
            return 0
        try:
            text = self._file.read_text()
        except OSError:
            return 0
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.strip().isdigit():
                return int(value)
        return 0


def _find(root: Path, membership: Path) -> Path | None:
    """Return the file that counts, in this process's own group, else at the root a container sees."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    places: list[Path] = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        inner = path.lstrip("/")
        if controllers == "":
            places += [root / inner / "memory.events", root / "unified" / inner / "memory.events"]
        elif "memory" in controllers.split(","):
            places.insert(0, root / "memory" / inner / "memory.oom_control")
    places += [root / "memory" / "memory.oom_control", root / "memory.events"]
    return next((place for place in places if place.is_file()), None)
