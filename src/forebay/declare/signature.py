"""Read what a handler takes: one data parameter, maybe a Context, sync or async, whole or in parts."""

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from forebay.declare.context import Context
from forebay.errors import AppError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How one handler is called and what its annotations say."""

    input_type: Any = Any  # of one item
    output_type: Any = Any  # of one item
    is_async: bool = False
    in_parts: bool = False  # a generator: the output is the list of its parts
    context: str = ""  # "", "one" or "each" (a list, one per item)


def read_signature(where: str, handler: Callable[..., Any], *, batched: bool, bound: bool) -> Signature:
    """Return the signature of a plain function, or of a predict method (`bound`: skip self).

    Raises AppError with one sentence when it cannot be called with one payload.
    """
    hints = _hints(where, handler)
    parameters = list(inspect.signature(handler).parameters.values())[1 if bound else 0 :]
    data, context = _split(where, parameters, hints)
    is_generator = inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler)
    is_async = inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler)
    taken = hints.get(data.name, Any)
    given = _without_failed(hints.get("return", Any))
    if is_generator:
        given = _part_type(given, batched=batched)
    if batched:
        taken = _item_type(where, taken, f"{data.name}", "takes")
        given = given if is_generator else _item_type(where, given, "its result", "returns")
    if is_generator and given is not Any:
        given = types.GenericAlias(list, (given,))
    kind = "" if context is None else "each" if _is_list_of_context(hints.get(context.name)) else "one"
    return Signature(
        input_type=taken, output_type=given, is_async=is_async, in_parts=is_generator, context=kind
    )


def signature_of(where: str, target: Callable[..., Any]) -> Signature:
    """Return the signature of a plain function, or of the predict of a class. Raises AppError with one
    sentence for what cannot be served."""
    if not inspect.isclass(target):
        return read_signature(where, target, batched=False, bound=False)
    predict = inspect.getattr_static(target, "predict", None)
    if not inspect.isfunction(predict):
        raise AppError(f"{where}: the class needs a method predict(self, items)")
    _check_method(where, target, "load", "load(self, device)", most=1)
    _check_method(where, target, "warm_up", "warm_up(self)", most=0)
    try:
        inspect.signature(target).bind()
    except TypeError:
        raise AppError(
            f"{where}: the class is made without arguments; load(self, device) prepares it"
        ) from None
    return read_signature(where, predict, batched=True, bound=True)


def _check_method(where: str, target: type, method: str, form: str, *, most: int) -> None:
    found = inspect.getattr_static(target, method, None)
    if found is None:
        return
    if not inspect.isfunction(found):
        raise AppError(f"{where}: {method} must be a method {form}")
    try:
        inspect.signature(found).bind(None, *(None,) * most)
    except TypeError:
        try:
            inspect.signature(found).bind(None)
        except TypeError:
            raise AppError(f"{where}: {method} must be a method {form}") from None


def _hints(where: str, handler: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(handler, include_extras=True)
    except Exception as error:
        raise AppError(f"{where}: an annotation cannot be read: {error}") from None


def _split(
    where: str, parameters: list[inspect.Parameter], hints: dict[str, Any]
) -> tuple[inspect.Parameter, inspect.Parameter | None]:
    for parameter in parameters:
        if parameter.kind not in _POSITIONAL:
            raise AppError(
                f"{where}: {parameter.name} must be an ordinary parameter; "
                "*args, **kwargs and keyword-only ones cannot be given a payload"
            )
    contexts = [p for p in parameters if _is_context(p, hints.get(p.name))]
    data = [p for p in parameters if p not in contexts]
    if len(data) != 1:
        names = ", ".join(p.name for p in data) or "none"
        raise AppError(
            f"{where}: exactly one data parameter is taken, the payload; it has {len(data)} ({names}). "
            "Put several values into one dataclass or dict"
        )
    if len(contexts) > 1 or (contexts and parameters[0] is contexts[0]):
        raise AppError(f"{where}: one Context may follow the data parameter")
    return data[0], contexts[0] if contexts else None


def _is_context(parameter: inspect.Parameter, hint: Any) -> bool:
    if hint is None:
        return parameter.name == "context"
    return hint is Context or _is_list_of_context(hint) or Context in typing.get_args(hint)


def _is_list_of_context(hint: Any) -> bool:
    return typing.get_origin(hint) is list and typing.get_args(hint) == (Context,)


_LISTS = (list, tuple, typing.get_origin(typing.Sequence), typing.get_origin(typing.Iterable))


def _part_type(hint: Any, *, batched: bool) -> Any:
    """Return the type of one part: what a generator yields, without the index in a batch."""
    args = typing.get_args(hint)
    if not args:
        return Any
    part = args[0]
    if not batched:
        return _without_failed(part)
    pair = typing.get_args(part)
    return _without_failed(pair[1]) if typing.get_origin(part) is tuple and len(pair) == 2 else Any


def _item_type(where: str, hint: Any, what: str, verb: str) -> Any:
    """Return T of list[T]; a bare list or no annotation is any JSON."""
    if hint is Any or hint in _LISTS:
        return Any
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in _LISTS and (len(args) == 1 or (origin is tuple and args[1:] == (...,))):
        return _without_failed(args[0])
    name = getattr(hint, "__name__", str(hint))
    raise AppError(
        f"{where}: predict {verb} a list, one entry per item: annotate {what} as list[{name}], not {name}"
    )


def _is_exception(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(cast("type[object]", hint), BaseException)


def _without_failed(hint: Any) -> Any:
    """Return the type of a good output: unions without exceptions such as Failed."""
    args = typing.get_args(hint)
    if not args or typing.get_origin(hint) not in (typing.Union, type(int | str)):
        return hint
    kept: list[Any] = [arg for arg in args if not _is_exception(arg)]
    if len(kept) == len(args):
        return hint
    result: Any = kept[0] if kept else Any
    for arg in kept[1:]:
        result = result | arg
    return result
