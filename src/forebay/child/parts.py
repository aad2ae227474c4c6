"""Pieces: the parts of one output as a generator yields them. Each leaves at once, all are the result."""

from collections.abc import Callable
from typing import Any, Final

from forebay.child.codec import NotJsonError, encode_output
from forebay.core.job import JobError
from forebay.errors import ForebayError
from forebay.node.frames import ItemResult

PARTS_MAX: Final = 100_000  # parts one generator may yield
PART_BYTES_MAX: Final = 64 * 1024  # a larger part is in the result alone, and does not travel before it

Emit = Callable[[int, int, bytes], None]  # (tag, number of the part, JSON text)
Fail = Callable[[int, BaseException], ItemResult]
Unfit = Callable[[Any, bytes], str]  # why a part does not fit its annotation, "" when it does


class TooManyPartsError(Exception):
    """A generator yielded more than PARTS_MAX parts for one item."""


class Pieces:
    """What one item has yielded so far. Once it has failed nothing more is kept."""

    __slots__ = (
        "_count", "_emit", "_enter", "_fail", "_limit", "_name", "_size", "_texts", "_unfit", "failed", "tag",
    )  # fmt: skip

    def __init__(
        self,
        tag: int,
        name: str,
        *,
        bytes_max: int,
        emit: Emit,
        fail: Fail,
        unfit: Unfit | None,
        enter: Callable[[], object] | None = None,
    ) -> None:
        self.tag = tag
        self.failed: ItemResult | None = None
        self._name = name
        self._limit = bytes_max
        self._emit = emit
        self._fail = fail
        self._unfit = unfit
        self._enter = enter  # called before a part is written: whose blobs are stored from here on
        self._texts: list[bytes] = []
        self._count = 0
        self._size = 2  # of the brackets

    def add(self, part: Any) -> None:
        """Take the next part; an exception in its place (Failed) fails the item.

        Raises TooManyPartsError when a generator goes on for an item that has had too many: in a batch
        nothing else would end it.
        """
        self._count += 1
        if self._count > PARTS_MAX:
            error = TooManyPartsError(
                f"a generator may yield {PARTS_MAX:,} parts for one payload, and it went on"
            )
            if self._count > PARTS_MAX + 1:
                raise error
            part = error
        elif self.failed is not None:
            return
        if isinstance(part, BaseException):
            self.failed = self._fail(self.tag, part)
            return
        number = self._count - 1
        try:
            if self._enter is not None:
                self._enter()
            text = encode_output(part)
        except (ForebayError, OSError) as error:
            self.failed = self._fail(self.tag, error)
            return
        except NotJsonError as error:
            self._refuse("result_not_json", f"part {number} of the output is not JSON: {error}")
            return
        if self._unfit is not None and (why := self._unfit(part, text)):
            self._refuse("invalid_result", f"part {number} of the output does not fit its annotation: {why}")
            return
        self._size += len(text) + (number > 0)
        if self._size > self._limit:
            limit = f"at most {self._limit:,} are kept (result_bytes_max)"
            self._refuse("result_too_large", f"the parts are {self._size:,} bytes and more, {limit}")
            return
        self._texts.append(text)
        self._emit(self.tag, number, text if len(text) <= PART_BYTES_MAX else b"")

    def result(self) -> ItemResult:
        """Return how the item ended: the list of its parts, or what was wrong with one."""
        return self.failed or ItemResult(self.tag, b"[" + b",".join(self._texts) + b"]")

    def _refuse(self, code: str, why: str) -> None:
        self.failed = ItemResult(self.tag, None, JobError(code, f"{self._name}: {why}"), True)
