"""Place: how far a partition is done: hints are acknowledged in any order, and brokers keep one number."""

from collections import deque


class Place:
    """One partition while it is ours. Only what lies below the lowest hint that is not done may be committed:
    after a crash all from there come again, and none is passed over."""

    __slots__ = ("_next", "_open", "_order", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch  # which time of ours this is: hints of an earlier one are no longer held
        self._order: deque[int] = deque()  # offsets from the lowest that is not done, as they came
        self._open: set[int] = set()  # those of them that are not done
        self._next: int | None = None

    @property
    def span(self) -> int:
        """How many are remembered: those that are not done, and those done behind the lowest of them."""
        return len(self._order)

    @property
    def open(self) -> int:
        """How many came and are not done."""
        return len(self._open)

    @property
    def committable(self) -> int | None:
        """Where somebody else should go on: the lowest that is not done, else what comes next; None before
        anything came."""
        return self._order[0] if self._order else self._next

    def came(self, offset: int) -> bool:
        """Note one that came. False, and nothing is noted, when it does not lie above all before it: the
        topic was made anew."""
        if self._next is not None and offset < self._next:
            return False
        self._order.append(offset)
        self._open.add(offset)
        self._next = offset + 1
        return True

    def holds(self, offset: int) -> bool:
        """Return whether one came and is not done."""
        return offset in self._open

    def done(self, offset: int) -> bool:
        """Note that one is done. False when it is not held: it never came, or is done."""
        if offset not in self._open:
            return False
        self._open.discard(offset)
        while self._order and self._order[0] not in self._open:
            self._order.popleft()
        return True
