"""Calls: user code called on a batch in this process; each frame's outcome stands alone."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from forebay.core.ladder import scaled
from forebay.declare import Device, Failed
from forebay.declare.options import Exceptions
from forebay.errors import AppError
from forebay.pipeline.stage import Callee, FrameFacts

TEXT_MAX: Final = 500
_RESIZED: Final = ("uint8", "uint16", "float32")  # what OpenCV shrinks


class Failure(NamedTuple):
    """A call that gave nothing for a frame. `ignored`: it says nothing about the health of the stage."""

    kind: str
    text: str
    ignored: bool = False


class Job(NamedTuple):
    """One frame for a call."""

    value: Any
    facts: FrameFacts
    scale: float = 1.0


def failure_of(error: BaseException, ignore: Exceptions = ()) -> Failure:
    """Return what is told of an exception."""
    try:
        text = str(error)[:TEXT_MAX]
    except Exception:
        text = ""
    return Failure(type(error).__name__, text, isinstance(error, ignore))


class Calls:
    """A target made ready in this process. Not for several threads at once."""

    def __init__(self, callee: Callee, ignore: Exceptions = ()) -> None:
        self._callee = callee
        self._ignore = ignore
        self._call: Any = callee.target

    def load(self, device: Device) -> None:
        """Make the class and load it. Raises what it raises."""
        if not self._callee.batched:
            return
        assert not isinstance(self._callee.target, str)
        made = self._callee.target()
        if self._callee.loads:
            _loaded(made.load, device)
        if self._callee.warms:
            made.warm_up()
        self._call = made.predict

    def run(self, jobs: Sequence[Job]) -> list[Any]:
        """Return for each job a value, or a Failure."""
        values = [one.value if one.scale == 1.0 else scale_of(one.value, one.scale) for one in jobs]
        if not self._callee.batched:
            return [self._one(value, job) for value, job in zip(values, jobs, strict=True)]
        try:
            facts = ([job.facts for job in jobs],) if self._callee.informed else ()
            answers = _answers(self._call(values, *facts), len(jobs))
        except Exception as error:
            return [failure_of(error, self._ignore)] * len(jobs)
        return [Failure("Failed", str(one)[:TEXT_MAX]) if isinstance(one, Failed) else one for one in answers]

    def _one(self, value: Any, job: Job) -> Any:
        try:
            answer = self._call(value, job.facts) if self._callee.informed else self._call(value)
        except Exception as error:
            return failure_of(error, self._ignore)
        return Failure("Failed", str(answer)[:TEXT_MAX]) if isinstance(answer, Failed) else answer


def _answers(given: Any, count: int) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise AppError(f"predict must return a list, one value for each frame, not {type(given).__name__}")
    answers: list[Any] = list(given)  # pyright: ignore[reportUnknownArgumentType]
    if len(answers) != count:
        raise AppError(f"predict must return {count} values, one for each frame, not {len(answers)}")
    return answers


def _loaded(load: Any, device: Device) -> None:
    import inspect

    takes = len(inspect.signature(load).parameters)
    load(device) if takes else load()


def scale_of(value: Any, scale: float) -> Any:
    """Return an image at a scale of its height and width. What is no image (bytes, a list) stays as it is."""
    if getattr(value, "ndim", 0) < 2:
        return value
    height, width = value.shape[:2]
    rows, columns = scaled(height, scale), scaled(width, scale)
    cv2 = _opencv()
    if cv2 is not None and value.dtype.name in _RESIZED and value.ndim <= 3:
        return cv2.resize(value, (columns, rows), interpolation=cv2.INTER_AREA)
    step = round(1 / scale)
    if abs(step * scale - 1) < 1e-9:
        return value[::step, ::step]
    down = [row * height // rows for row in range(rows)]
    across = [column * width // columns for column in range(columns)]
    return value[down][:, across]


_found: list[Any] = []


def _opencv() -> Any:
    if not _found:
        try:
            import cv2  # type: ignore[import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports]
        except Exception:
            cv2 = None
        _found.append(cv2)
    return _found[0]
