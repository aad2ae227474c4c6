"""Inputs and Results: from a payload to what the handler takes, and from what it gave to a result."""

# Values of user code have no types here.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, Final

from forebay.child.blobs import ChildBlobs
from forebay.child.codec import (
    NotJsonError,
    encode_output,
    is_plain,
    make_decoder,
    make_fitter,
    make_output_check,
    whole_numbers,
    with_blobs,
)
from forebay.child.pixels import FrameReader
from forebay.child.texts import safe_text, type_name
from forebay.core.job import JobError
from forebay.declare.blob import Blob
from forebay.errors import (
    BlobCorruptError,
    BlobRefusedError,
    ForebayError,
    StoreUnavailableError,
    TooLargeError,
)
from forebay.node.frames import FRAME_MARK, ItemResult, RunItem

_UNFIT: Final[Any] = object()


class Inputs:
    """Payloads of one task, read."""

    def __init__(self, kind: Any, blobs: ChildBlobs | None) -> None:
        self._decode = make_decoder(kind)
        self._fit = None if kind in {Any, object} else make_fitter(kind)
        self._frames = FrameReader()
        self._blobs = blobs
        self._untyped = kind in {Any, object}
        self._takes_blob = kind is Blob

    def value(self, item: RunItem) -> Any:
        """Return what the handler takes for this item; what its payload names is opened."""
        text, blobs = item.payload, self._blobs
        if text[:1] == FRAME_MARK:
            value = self._frames.value(text)
            return value if self._fit is None else self._fit(value)
        untyped = False
        if blobs is not None and blobs.enter(item):
            text = blobs.text_of(item, takes_blob=self._takes_blob)
            untyped = self._untyped
        try:
            value = self._decode(text)
        except Exception:
            try:
                value = self._decode(whole_numbers(text))
            except Exception:
                value = _UNFIT
            if value is _UNFIT:
                raise
        return blobs.resolve(value) if untyped and blobs is not None else value


class Results:
    """Outputs of one task, written and checked."""

    def __init__(self, name: str, kind: Any, *, bytes_max: int, blobs: ChildBlobs | None) -> None:
        self._name = name
        self._unfit = make_output_check(kind)
        self._bytes_max = bytes_max
        self._blobs = blobs

    def result(self, item: RunItem, output: Any) -> ItemResult:
        """Return the result for one output. What is binary or large is stored as a blob."""
        tag, blobs = item.tag, self._blobs
        try:
            unfit = self._unfit
            if blobs is not None:
                blobs.enter(item)
                if not is_plain(output) and (kept := with_blobs(output)) is not output:
                    output, unfit = kept, None  # no annotation speaks of references
            text = encode_output(output)
            if unfit is not None and (why := unfit(output, text)):
                told = f"{self._name}: the output does not fit its annotation: {why}"
                return ItemResult(tag, None, JobError("invalid_result", told), True)
            if len(text) > self._bytes_max and blobs is not None:
                text = blobs.keep_text(text)
        except NotJsonError as error:
            reason = JobError("result_not_json", f"{self._name}: the output is not JSON: {error}")
            return ItemResult(tag, None, reason, True)
        except (ForebayError, OSError) as error:
            return self._not_stored(tag, error)
        if len(text) > self._bytes_max:
            limit = f"at most {self._bytes_max:,} are kept (result_bytes_max)"
            reason = JobError("result_too_large", f"{self._name}: the output is {len(text):,} bytes, {limit}")
            return ItemResult(tag, None, reason, True)
        return ItemResult(tag, text)

    def _not_stored(self, tag: int, error: Exception) -> ItemResult:
        """Return the result for an output whose bytes could not be stored; another time they may be."""
        if isinstance(error, TooLargeError):
            return ItemResult(tag, None, JobError("result_too_large", f"{self._name}: {error}"), True)
        reason = JobError("result_not_stored", f"{self._name}: {safe_text(error)}", type_name(error))
        return ItemResult(tag, None, reason, False)


def of_blobs(error: BaseException | None) -> ForebayError | None:
    """Return what our own code said of a blob, also where a decoder wrapped it."""
    while error is not None and not isinstance(error, ForebayError):
        error = error.__cause__ or error.__context__
    kinds = (BlobCorruptError, BlobRefusedError, TooLargeError, StoreUnavailableError)
    return error if isinstance(error, kinds) else None
