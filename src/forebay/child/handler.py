"""Handler: one task made callable. Decode, call, check, encode; an item's failure stays its own."""

# Values of user code have no types here.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import typing
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple, cast

from forebay.child.blobs import ChildBlobs
from forebay.child.codec import (
    make_output_check,
)
from forebay.child.halving import halve
from forebay.child.parts import Emit, Pieces, TooManyPartsError
from forebay.child.payloads import Inputs, Results, of_blobs
from forebay.child.texts import TraceLog, clean, safe_text, type_name
from forebay.core.job import JobError
from forebay.declare import Context, Failed, Retry, Task
from forebay.errors import (
    BlobCorruptError,
    BlobRefusedError,
    BreakerOpenError,
)
from forebay.node.frames import ItemResult, RunItem


class Call:
    """One call of a batched handler: these items, decoded afresh, as handlers may change what they get.

    Whoever makes the call leaves in `answer` what it returned, or the exception it raised as `Raised`.
    """

    __slots__ = ("answer", "items", "values")

    def __init__(self, items: list[RunItem], values: list[Any]) -> None:
        self.items = items
        self.values = values
        self.answer: Any = None


_FOR_ALL = Retry | BreakerOpenError  # raised from a batch they are the answer for every item


class WrongOutputError(Exception):
    """The handler's answer does not say which output is whose."""


class Handler:
    """Calls one task's code. `call` is the function, or the loaded instance's predict."""

    def __init__(
        self,
        task: Task,
        call: Callable[..., Any],
        *,
        contexts: "Callable[[list[RunItem]], Context]",
        result_bytes_max: int,
        traces: TraceLog,
        emit: Emit,
        blobs: ChildBlobs | None = None,
        variants: "tuple[Handler, ...]" = (),
    ) -> None:
        self._variants = variants
        self.name = task.spec.name
        self.batched = task.is_class
        self.is_async = task.signature.is_async
        self.in_parts = task.signature.in_parts
        self.concurrency = task.spec.concurrency
        self.call = call
        self._task = task
        self._inputs = Inputs(task.signature.input_type, blobs)
        self._results = Results(
            self.name, task.signature.output_type, bytes_max=result_bytes_max, blobs=blobs
        )
        self._part_unfit = make_output_check(_part_type(task))
        self._contexts = contexts
        self._result_bytes_max = result_bytes_max
        self._traces = traces
        self._emit = emit
        self._blobs = blobs
        self._plain = not task.signature.context and not self.in_parts

    def at(self, level: int) -> "Handler":
        """Return what runs the task at this level, 0 is the task itself."""
        return self._variants[level - 1] if level else self

    # One item of a plain function.

    def run_one(self, item: RunItem) -> ItemResult:
        """Return how the call for this item ended. Raises nothing, whatever the handler raises."""
        try:
            value = self._inputs.value(item)
        except Exception as error:
            return self.invalid(item.tag, error)
        try:
            if self._plain:
                output = self.call(value)
            else:
                output = self.call(value, *self.context([item]))
                if self.in_parts:
                    output = self._walk(item, output)
        except BaseException as error:
            return self.failure(item.tag, error)
        return self.finish(item, output)

    async def run_one_async(self, item: RunItem) -> ItemResult:
        """The same for an async function."""
        try:
            value = self._inputs.value(item)
        except Exception as error:
            return self.invalid(item.tag, error)
        try:
            output = self.call(value, *self.context([item]))
            if self.in_parts:
                output = await self._walk_async(item, output)
            else:
                output = await output
        except BaseException as error:
            return self.failure(item.tag, error)
        return self.finish(item, output)

    # Outputs in parts.

    def _walk(self, item: RunItem, parts: Generator[Any, None, None]) -> Pieces:
        pieces = self._pieces(item)
        try:
            for part in parts:
                pieces.add(part)
                if pieces.failed is not None:
                    break
        finally:
            parts.close()
        return pieces

    async def _walk_async(self, item: RunItem, parts: AsyncGenerator[Any, None]) -> Pieces:
        pieces = self._pieces(item)
        try:
            async for part in parts:
                pieces.add(part)
                if pieces.failed is not None:
                    break
        finally:
            await parts.aclose()
        return pieces

    def gather(self, items: list[RunItem], pairs: Iterable[Any]) -> list[Pieces]:
        """Return the pieces of each item from a batched generator's (index, part) pairs.

        A part that is an exception (Failed) fails its item, and so does one too many. Raises WrongOutputError
        for anything but a pair with an index of the batch.
        """
        gathered = [self._pieces(item) for item in items]
        for pair in pairs:
            put_part(gathered, pair)
        return gathered

    async def gather_async(self, items: list[RunItem], pairs: AsyncGenerator[Any, None]) -> list[Pieces]:
        """The same for an async generator."""
        gathered = [self._pieces(item) for item in items]
        async for pair in pairs:
            put_part(gathered, pair)
        return gathered

    def _pieces(self, item: RunItem) -> Pieces:
        blobs = self._blobs
        return Pieces(
            item.tag,
            self.name,
            bytes_max=self._result_bytes_max,
            emit=self._emit,
            fail=self.failure,
            unfit=self._part_unfit,
            enter=None if blobs is None else lambda: blobs.enter(item),
        )

    # A batch.

    def batch_calls(
        self, items: list[RunItem], put: Callable[[ItemResult], None], announce: Callable[[int], None]
    ) -> Iterator[Call]:
        """Yield the calls to make for these items, one after the other, and `put` each item's result.

        `announce` is told of how many items before each call but the first: its own time counts.
        """
        good = self._decodable(items, put)
        error: BaseException = Failed()

        def blame(index: int, in_company: bool) -> None:
            failed = self.failure(good[index].tag, error)
            if in_company:
                failed = failed._replace(alone=True, permanent=False)
            put(failed)

        if not good:
            return
        search = halve(len(good), blame)
        indexes, first = next(search), True
        while True:
            chosen = [good[index] for index in indexes]
            if not first:
                announce(len(chosen))
            first = False
            call = Call(chosen, [self._inputs.value(item) for item in chosen])
            yield call
            answer = call.answer
            if isinstance(answer, Raised) and not isinstance(answer.error, _FOR_ALL | WrongOutputError):
                error = answer.error
                if not self._task.split and len(chosen) > 1:
                    for item in chosen:
                        put(self.failure(item.tag, error)._replace(alone=True))
                    return
                succeeded = False
            else:
                for result in self._settle(chosen, answer):
                    put(result)
                succeeded = True
            try:
                indexes = search.send(succeeded)
            except StopIteration:
                return

    def _decodable(self, items: list[RunItem], put: Callable[[ItemResult], None]) -> list[RunItem]:
        good: list[RunItem] = []
        for item in items:
            try:
                self._inputs.value(item)
            except Exception as error:
                put(self.invalid(item.tag, error))
            else:
                good.append(item)
        return good

    def _settle(self, items: list[RunItem], answer: Any) -> list[ItemResult]:
        if isinstance(answer, Raised) and isinstance(answer.error, _FOR_ALL):
            return [self.failure(item.tag, answer.error) for item in items]
        try:
            if isinstance(answer, Raised):
                raise answer.error
            outputs = self._outputs(answer, len(items))
        except WrongOutputError as error:
            wrong = JobError("wrong_output_count", f"{self.name}: {error}")
            return [ItemResult(item.tag, None, wrong, True) for item in items]
        return [self.finish(item, output) for item, output in zip(items, outputs, strict=True)]

    def _outputs(self, answer: Any, count: int) -> list[Any]:
        """Return the outputs in order when the answer is one list entry per item."""
        outputs = cast("list[Any] | None", answer if isinstance(answer, list | tuple) else None)
        if outputs is None:
            kind = "None" if answer is None else f"a {type(answer).__name__}"
            raise WrongOutputError(f"predict got {count} items and returned {kind}; a list is needed")
        if len(outputs) != count:
            raise WrongOutputError(f"predict got {count} items and returned {len(outputs)} outputs")
        return list(outputs)

    # Shared.

    def context(self, items: list[RunItem]) -> tuple[Any, ...]:
        """Return the extra arguments of a call: nothing, a Context, or one for each item."""
        kind = self._task.signature.context
        if not kind:
            return ()
        if kind == "each":
            return ([self._contexts([item]) for item in items],)
        return (self._contexts(items),)

    def finish(self, item: RunItem, output: Any) -> ItemResult:
        """Return the result for what the handler gave for one item."""
        if isinstance(output, BaseException):
            return self.failure(item.tag, output)
        if isinstance(output, Pieces):
            return output.result()
        return self._results.result(item, output)

    def invalid(self, tag: int, error: BaseException) -> ItemResult:
        """Return the result for a payload that does not fit the handler's type, or whose blob is gone."""
        told = of_blobs(error)
        if told is not None:
            return ItemResult(tag, None, JobError(told.code, str(told), type_name(told)), told.status < 500)
        text = f"{self.name}: the payload does not fit: {safe_text(error)}"
        return ItemResult(tag, None, JobError("invalid_payload", clean(text, 2_000), type_name(error)), True)

    def failure(self, tag: int, error: BaseException) -> ItemResult:
        """Return the result for an exception of the handler, by the task's rules for retries."""
        if type(error) is TooManyPartsError:
            reason = JobError("too_many_parts", f"{self.name}: {error}")
            return ItemResult(tag, None, reason, True)
        self._traces.write(error)
        permanent, after_s = self._permanent(error), None
        if isinstance(error, Failed):
            permanent, after_s = error.permanent, error.after_s
        name = type_name(error)
        if isinstance(error, BlobCorruptError | BlobRefusedError):
            return ItemResult(tag, None, JobError(error.code, str(error), name), True)
        if isinstance(error, BreakerOpenError):
            reason = JobError(error.code, safe_text(error), name)
            return ItemResult(tag, None, reason, False, error.retry_after_s or 0.0, uncharged=True)
        code = "cancelled" if name == "CancelledError" else "handler_failed"
        reason = JobError(code, safe_text(error) or name, name)
        ignored = isinstance(error, self._task.breaker_ignore)
        return ItemResult(tag, None, reason, permanent, after_s, ignored=ignored)

    def _permanent(self, error: BaseException) -> bool:
        if isinstance(error, self._task.permanent_on):
            return True
        retry_on = self._task.retry_on
        return retry_on is not None and not isinstance(error, retry_on)


class Raised(NamedTuple):
    """The exception a call raised, as an answer."""

    error: BaseException


def put_part(gathered: list[Pieces], pair: Any) -> None:
    """File one (index, part) pair."""
    known: tuple[Any, ...] = pair if isinstance(pair, tuple) else ()
    if len(known) != 2:
        raise WrongOutputError("a generator in predict yields pairs (index, part)")
    index, part = known
    if not isinstance(index, int) or not 0 <= index < len(gathered):
        raise WrongOutputError(f"predict yielded the index {index!r:.40}, of {len(gathered)} items")
    gathered[index].add(part)


def _part_type(task: Task) -> Any:
    """Return what one part of an output in parts must be."""
    args = typing.get_args(task.signature.output_type) if task.signature.in_parts else ()
    return args[0] if args else Any
