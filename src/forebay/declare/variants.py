"""Variant, and variants= of a task: cheaper models, or smaller inputs, that run as its reservoir fills."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from forebay.core.variants import ENTER, LEAVE, RUNGS_MAX, LadderPolicy, Rung
from forebay.declare.options import Reader, refuse
from forebay.declare.signature import Signature, signature_of
from forebay.errors import AppError

NAME_LENGTH_MAX = 100


class Variant:
    """One cheaper way to do a task, as an entry of its `variants=[...]`.

    `target` is a class with predict, or a function, like the task's own and with the same input and output;
    without it the task's own handler runs and reads `context.level`, to shrink its input for example.
    `quality` is how good its answers are beside the task's own, which are 1; it is shown and decides nothing.
    It runs from `enter` of the reservoir on (0.75) and no more below `leave` (two thirds of `enter`).

    Nothing is checked before the task is declared. Not promised: which variant runs a certain piece of work.
    """

    __slots__ = ("enter", "leave", "name", "quality", "target")

    def __init__(
        self,
        target: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        quality: float | None = None,
        enter: float | None = None,
        leave: float | None = None,
    ) -> None:
        self.target = target
        self.name = name
        self.quality = quality
        self.enter = enter
        self.leave = leave


class Way(NamedTuple):
    """What a process that runs the task needs of one variant. `target` None: the task's own handler."""

    name: str
    target: Callable[..., Any] | None
    signature: Signature


def read_variants(
    read: Reader, value: object, stay: object, target: Callable[..., Any], signature: Signature
) -> tuple[LadderPolicy | None, tuple[Way, ...]]:
    """Return the ladder of a task and what runs on each of its rungs. Raises AppError with one sentence."""
    stay_s = read.seconds("variants_stay", stay)
    if value is None:
        return None, ()
    rule = f"a list of 1 to {RUNGS_MAX} classes, functions or forebay.Variant, from the best to the cheapest"
    several = isinstance(value, list | tuple)
    given = cast("list[object] | tuple[object, ...]", value) if several else ()
    if not 1 <= len(given) <= RUNGS_MAX:
        raise refuse(read.where, "variants", rule, value)
    ways: list[Way] = []
    rungs: list[Rung] = []
    for number, one in enumerate(given, 1):
        if not (isinstance(one, Variant) or callable(one)):
            raise refuse(read.where, "variants", rule, one)
        variant = one if isinstance(one, Variant) else Variant(one)
        name = _name(read, number, variant)
        where = f"{read.where}: variant {name}"
        way = Way(name, *_target(where, variant.target, target, signature))
        rungs.append(_rung(where, name, variant, rungs))
        if any(way.name == other.name for other in ways):
            raise AppError(f"{where}: named twice; give one of them another name=")
        ways.append(way)
    return LadderPolicy(rungs=tuple(rungs), stay_s=stay_s), tuple(ways)


def _name(read: Reader, number: int, variant: Variant) -> str:
    name: object = variant.name
    if name is None:
        name = f"level_{number}" if variant.target is None else getattr(variant.target, "__name__", "")
    if not isinstance(name, str) or not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        rule = f"a text of 1 to {NAME_LENGTH_MAX} printable characters"
        raise refuse(f"{read.where}: variant {number}", "name", rule, name)
    return name


def _target(
    where: str, target: Callable[..., Any] | None, whole: Callable[..., Any], signature: Signature
) -> tuple[Callable[..., Any] | None, Signature]:
    if target is None or target is whole:
        if not signature.context:
            raise AppError(
                f"{where}: it has no target of its own, and the task takes no Context to read its level from"
            )
        return None, signature
    if inspect.isclass(target) != inspect.isclass(whole):
        kind = "class with predict" if inspect.isclass(whole) else "plain function"
        raise AppError(f"{where}: must be a {kind}, as the task is")
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        raise AppError(f"{where}: must be a class or a plain function, not {type(target).__name__}")
    own = signature_of(where, target)
    for what, is_so in (("async", "is_async"), ("a generator", "in_parts")):
        if getattr(own, is_so) != getattr(signature, is_so):
            raise AppError(f"{where}: must be {what} exactly when the task is")
    for what, kind in (("takes", "input_type"), ("returns", "output_type")):
        mine, theirs = getattr(own, kind), getattr(signature, kind)
        if mine is not Any and mine != theirs:
            raise AppError(f"{where}: {what} {_shown(mine)}, and the task {what} {_shown(theirs)}")
    return target, own


def _rung(where: str, name: str, variant: Variant, before: list[Rung]) -> Rung:
    quality = variant.quality
    best = min((rung.quality for rung in before if rung.quality is not None), default=1.0)
    if quality is not None and not (_is_number(quality) and 0 < quality <= best):
        raise refuse(
            where, "quality", f"a number above 0 and at most {best:g}, that of the one before", quality
        )
    least = before[-1].enter if before else 0.0
    enter = max(ENTER, least) if variant.enter is None else variant.enter
    if not (_is_number(enter) and 0 < enter <= 1 and enter >= least):
        rule = (
            f"a share of at least {least:g}, as before it, and at most 1"
            if least
            else "a share above 0, at most 1"
        )
        raise refuse(where, "enter", rule, enter)
    leave = round(enter * LEAVE / ENTER, 4) if variant.leave is None else variant.leave
    if not (_is_number(leave) and 0 <= leave < enter):
        raise refuse(where, "leave", f"a share from 0 to less than enter ({enter:g})", leave)
    return Rung(name=name, quality=quality, enter=enter, leave=leave)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
