"""Model: what is to run and how much of it; and the writing of YAML that all files share."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - inside a container; keys are wanted there
GRACE_ROOM_S: Final = 15.0  # what an orchestrator waits beyond the grace of what runs
_PLAIN: Final = re.compile(r"[A-Za-z_./][\w./-]*(?: [\w./-]+)*")
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


class Model(NamedTuple):
    """One application and its capacity. `sized` says what the numbers follow from, empty when they are
    defaults."""

    app: str = "app.py"
    task: str = ""  # whose queue an autoscaler follows
    name: str = "forebay"
    image: str = "forebay:latest"
    port: int = 8080
    broker: str = "postgresql://forebay@postgres/forebay"  # where processes are apart
    workers: int = 1  # replicas of each task in one process
    nodes_min: int = 2
    nodes_max: int = 10
    target: int = 200  # waiting items for each node that an autoscaler keeps
    queue_max: int | None = None
    queue_bytes_max: int | None = None
    cpus: float = 1.0  # of one node
    memory_b: int = 1 << 30  # of one node
    gpus: int = 0  # of one node; -1: all
    grace_s: float = 30.0
    instance_type: str = "c5.large"
    sized: str = ""

    @property
    def stop_s(self) -> int:
        """How long an orchestrator waits before it kills."""
        return int(self.grace_s + GRACE_ROOM_S)

    @property
    def memory(self) -> str:
        """The memory of one node in whole MiB, as Kubernetes and compose read it."""
        return f"{max(64, -(-self.memory_b // (1 << 20)))}M"

    def settings(self) -> dict[str, str]:
        """Return the settings that follow from the model, as variables."""
        told = {"WORKER_CONCURRENCY": str(self.workers), "FOREBAY_GRACE": f"{self.grace_s:g}s"}
        if self.queue_max is not None:
            told["QUEUE_MAXSIZE"] = str(self.queue_max)
        if self.queue_bytes_max is not None:
            told["FOREBAY_QUEUE_BYTES_MAX"] = str(self.queue_bytes_max)
        return told

    def head(self, mark: str = "#") -> str:
        """Return the first lines of a file."""
        from_ = self.sized or "defaults: give --peak, --service and --wait-max for numbers of your own"
        return f"{mark} Written by forebay deploy. Sizes: {from_}\n"


def yaml(value: Any) -> str:
    """Return dicts, lists, texts, numbers and flags as YAML in blocks."""
    return "".join(f"{line}\n" for line in _lines(value))


def documents(*values: Any) -> str:
    """Return several as one file."""
    return "---\n".join(yaml(value) for value in values)


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        found: list[str] = []
        for key, below in cast("dict[object, Any]", value).items():
            found += _pair(_text(str(key)), below)
        return found
    if isinstance(value, list) and value:
        found = []
        for item in cast("Sequence[Any]", value):
            first, *rest = _lines(item)
            found += [f"- {first}", *(f"  {line}" for line in rest)]
        return found
    return [_scalar(value)]


def _pair(key: str, below: Any) -> list[str]:
    if isinstance(below, dict | list) and below:
        return [f"{key}:", *(f"  {line}" for line in _lines(below))]
    if isinstance(below, str) and "\n" in below:
        return [f"{key}: |", *(f"  {line}" if line else "" for line in below.splitlines())]
    return [f"{key}: {_scalar(below)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)


def _text(text: str) -> str:
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)
