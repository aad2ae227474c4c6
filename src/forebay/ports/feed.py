"""Feed: where a node says what running jobs report: parts of outputs and progress, as they come.

Nothing of it is stored and any of it may be lost: the states, the result and the checkpoints of a job are in
the store. So it may travel however an installation likes: to readers in this process, or over an engine.
"""

from collections.abc import Sequence
from typing import Protocol

from forebay.core.job import Lease


class Feed(Protocol):
    """Hears of running jobs. Calls are cheap, never wait and never raise."""

    def parts(self, lease: Lease, number: int, texts: Sequence[bytes]) -> None:
        """These are the parts from `number` on (0 is the first) of the output of one attempt, as JSON texts;
        an empty text stands for a part too large to travel. Number 0 again: the output begins anew."""
        ...

    def progress(self, lease: Lease, text: bytes) -> None:
        """The handler reported progress: JSON text {"share", "message"}."""
        ...
