"""Rules over Python code: queues that can grow without a bound."""

import re
from collections.abc import Iterator
from typing import Final

from forebay.core.linting.findings import Lint

_HOMES: Final = r"(?:queue|asyncio|multiprocessing|mp|ctx|context|manager|janus|culsans)"
_KINDS: Final = r"(?:Queue|LifoQueue|PriorityQueue|SimpleQueue|JoinableQueue)"
_QUALIFIED: Final = re.compile(rf"\b{_HOMES}\.({_KINDS})\((\s*|\s*(?:maxsize\s*=\s*)?0\s*)\)")
_PLAIN: Final = re.compile(rf"(?<![\w.])({_KINDS})\((\s*|\s*(?:maxsize\s*=\s*)?0\s*)\)")
_IMPORTED: Final = re.compile(
    rf"^\s*from\s+(?:queue|asyncio|multiprocessing)\s+import\s+.*\b{_KINDS}\b", re.MULTILINE
)


def code_rules(text: str) -> Iterator[Lint]:
    """Yield the queues that are made without a bound."""
    patterns = [_QUALIFIED, _PLAIN] if _IMPORTED.search(text) else [_QUALIFIED]
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0]
        found = next((match for pattern in patterns if (match := pattern.search(code))), None)
        if found is not None:
            yield Lint(
                "code-unbounded-queue",
                number,
                f"{found[0]} has no bound",
                "a maxsize, and what happens when it is full; frames: forebay.streams.FrameQueue",
            )
