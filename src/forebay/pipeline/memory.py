"""Memory: refuses queues that could hold more bytes than there are, once the size of a frame is known."""

import threading
from collections.abc import Sequence

from forebay.core.gate import GateTerms, bytes_needed
from forebay.errors import NoMemoryError
from forebay.host.memory import memory_free_b
from forebay.streams.asked import MEMORY_SHARE


class Memory:
    """What all queues of a pipeline take when they are full of the largest frames seen."""

    def __init__(self, terms: Sequence[GateTerms], names: Sequence[str], bytes_max: int | None) -> None:
        self._terms = terms
        self._names = names
        free_b = memory_free_b()
        self._limit_b = int(free_b * MEMORY_SHARE)
        self._what = f"{MEMORY_SHARE:.0%} of the {free_b:,} bytes that are free here"
        if bytes_max is not None and bytes_max < self._limit_b:
            self._limit_b, self._what = bytes_max, f"bytes_max ({bytes_max:,})"
        self._largest = [0] * len(terms)
        self._lock = threading.Lock()

    def seen(self, stage: int, size_b: int) -> None:
        """Take in a frame's size before a stage. Raises NoMemoryError, with the largest queue that would do,
        when full queues would not fit."""
        if size_b <= self._largest[stage]:
            return
        with self._lock:
            self._largest[stage] = max(size_b, self._largest[stage])
            needed = [
                bytes_needed([terms], largest)
                for terms, largest in zip(self._terms, self._largest, strict=True)
            ]
        if sum(needed) <= self._limit_b:
            return
        others_b, items = sum(needed) - needed[stage], self._terms[stage].items_max
        most = max(0, self._limit_b - others_b) // size_b
        advice = f"the largest that fits is {most}" if most else "not even one frame fits"
        raise NoMemoryError(
            f"stage {self._names[stage]}: a queue of {items} frames of {size_b:,} bytes is"
            f" {needed[stage]:,} bytes, and with the other queues more than {self._what}: {advice}"
            " (or give the queue a bytes_max)",
            limit=self._limit_b,
        )
