"""Queue, Degrade, Scale, Decimate: what is declared of the queue before a stage."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from forebay.core.buffer import Backoff, Door
from forebay.core.gate import GateTerms
from forebay.core.ladder import Step, check_steps, thresholds
from forebay.core.sizing.little import bound_of
from forebay.core.units import rate_per_s
from forebay.declare.options import Reader, refuse
from forebay.errors import AppError, InvalidError

ITEMS_DEFAULT: Final = 64
ITEMS_MAX: Final = 1_000_000
_log = logging.getLogger("forebay.streams")


@dataclass(frozen=True, slots=True)
class Scale:
    """From here on frames come to the stage smaller: `factor` of their height and width."""

    factor: float


@dataclass(frozen=True, slots=True)
class Decimate:
    """From here on one frame in `every` of each stream is taken; the others are dropped as `decimated`."""

    every: int


class Degrade:
    """What a stage does as its queue fills, instead of dropping: steps of (share of the capacity, measure).

    A measure is `Scale`, `Decimate`, or None: the frames are flagged, for the stage to look at. A protected
    stream is always one step behind the others. Raises AppError with one line.
    """

    def __init__(self, steps: "Iterable[tuple[float, Scale | Decimate | None]]") -> None:
        self.steps = tuple(_step(one) for one in steps)
        _checked(lambda: check_steps(self.steps, None))

    def __repr__(self) -> str:
        return f"Degrade({[tuple(step) for step in self.steps]})"


class Queue:
    """The bounded queue before a stage.

    `maxsize`: frames that may wait. `bytes_max`: bytes that may, beside it. `on_full`: `block`,
    `Backoff(...)`, `drop_newest`, `drop_oldest`, `latest_only`, `reject`. `put_timeout`: how long a frame
    waits for room under the first two; then it is dropped as `timeout`. `degrade_at`, `drop_at`: shares of
    `maxsize` from which frames are flagged as degraded, or cost a frame. Raises AppError with one line.
    """

    def __init__(
        self,
        maxsize: int = ITEMS_DEFAULT,
        *,
        on_full: str | Backoff = "block",
        put_timeout: float | str | None = None,
        bytes_max: int | str | None = None,
        degrade_at: float | None = None,
        drop_at: float | None = None,
    ) -> None:
        read = Reader("queue")
        items = read.count("maxsize", maxsize, most=ITEMS_MAX)
        steps = () if degrade_at is None else (Step(degrade_at),)
        _checked(lambda: Door(on_full, items_max=items, degrade_at=degrade_at, drop_at=drop_at))
        self.put_timeout_s = None if put_timeout is None else read.seconds("put_timeout", put_timeout)
        self.terms = GateTerms(
            items_max=items,
            policy=on_full,
            bytes_max=read.size_or_none("bytes_max", bytes_max),
            drop_at=drop_at,
            ladder=steps,
        )

    @classmethod
    def sized(cls, peak_per_s: float | str, wait_max: float | str, **rest: Any) -> "Queue":
        """Return a queue for a rate at which no frame should wait longer than `wait_max`: 60/s and 200 ms are
        12 frames, and 16 with room for chance. `rest` is what Queue takes."""
        try:
            rate = rate_per_s(peak_per_s)
        except ValueError as error:
            raise AppError(f"queue: peak_per_s: {error}") from None
        return cls(bound_of(rate * Reader("queue").seconds("wait_max", wait_max)), **rest)

    @classmethod
    def thresholds(cls, maxsize: int = 1000, *, drop: int = 900, degrade: int = 950, **rest: Any) -> "Queue":
        """Return a queue by thresholds in frames, as older settings have them.

        The defaults are such a set: 1,000, drop from 900, degrade from 950. It contradicts itself, as what is
        dropped from 900 on never reaches 950. Then the milder measure gets the lower mark: degrade from 900,
        drop from 950; and the log says so once, at the level of a warning.
        """
        read = Reader("queue")
        items = read.count("maxsize", maxsize, most=ITEMS_MAX)
        marks = _checked(lambda: thresholds(items, drop=drop, degrade=degrade))
        if marks.note:
            _log.warning("queue: %s", marks.note)
        given: dict[str, Any] = {
            "on_full": "drop_oldest",
            "degrade_at": marks.degrade_at,
            "drop_at": marks.drop_at,
        }
        return cls(items, **(given | rest))

    def with_stage(self, where: str, on_full: str | Backoff | None, degrade: Degrade | None) -> GateTerms:
        """Return the terms with what the stage says beside. Raises AppError for what is said twice."""
        terms = self.terms
        if on_full is not None:
            if terms.policy not in ("block", on_full):
                raise AppError(f"{where}: on_full is given twice, to the stage and to its queue")
            terms = replace(terms, policy=on_full)
        if degrade is not None:
            if terms.ladder:
                raise AppError(f"{where}: give degrade= to the stage or degrade_at= to its queue, not both")
            if not isinstance(degrade, Degrade):
                raise refuse(where, "degrade", "a forebay.Degrade", degrade)
            _checked(lambda: check_steps(degrade.steps, terms.drop_at))
            terms = replace(terms, ladder=degrade.steps)
        _checked(lambda: Door(terms.policy, items_max=terms.items_max, drop_at=terms.drop_at), where)
        return terms


def _step(given: Any) -> Step:
    try:
        at, measure = given
    except (TypeError, ValueError):
        raise refuse(
            "degrade", "a step", "(share, measure), such as (0.9, forebay.Scale(0.5))", given
        ) from None
    if isinstance(measure, Scale):
        return Step(at, scale=measure.factor)
    if isinstance(measure, Decimate):
        return Step(at, every=measure.every)
    if measure is None:
        return Step(at)
    raise refuse("degrade", "a measure", "forebay.Scale, forebay.Decimate or None", measure)


def _checked(check: Any, where: str = "queue") -> Any:
    try:
        return check()
    except InvalidError as error:
        raise AppError(f"{where}: {error}") from None
