"""Scenarios: a TOML text as a Scenario, with a sentence for each thing that is wrong in it."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from forebay.cli.show import Stop, clean
from forebay.core.codel import Discipline
from forebay.core.units import duration_s, rate_per_s
from forebay.sim.scenario import Arrivals, Policy, Scenario
from forebay.sim.service import Service

T = TypeVar("T")
POLICIES_MAX = 12
_PRIORITIES = {"high": 2, "normal": 5, "low": 8}
_MODEL = frozenset({"fixed", "each", "batch_max", "replicas", "spread", "slower"})
_POLICY = _MODEL | {"name", "kind", "queue_max", "full", "discipline"}
_ARRIVALS = frozenset({"name", "rate", "burst", "from", "until", "priority", "even"})
_TOP = frozenset({"title", "for", "deadline", "seed", "model", "arrivals", "policy"})


class _Table:
    """One table of the file."""

    def __init__(self, where: str, values: Mapping[str, Any], known: frozenset[str]) -> None:
        self.where, self.values = where, values
        unknown = sorted(set(values) - known)
        if unknown:
            raise Stop(
                f"{where}: unknown field {clean(unknown[0], 40)!r} (known: {', '.join(sorted(known))})", 2
            )

    def get(self, name: str, read: Callable[[Any], T], default: T) -> T:
        """Return a field. Raises Stop naming table, field, rule and value."""
        if name not in self.values:
            return default
        try:
            return read(self.values[name])
        except (ValueError, TypeError, KeyError) as error:
            raise Stop(
                f"{self.where}: {name} = {clean(repr(self.values[name]), 60)}: {clean(error, 120)}", 2
            ) from None


def read_scenario(text: str, name: str) -> Scenario:
    """Return the scenario of a TOML text. Raises Stop with one line for what is wrong in it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Stop(f"{clean(name, 200)}: {clean(error)}", 2) from None
    top = _Table(name, document, _TOP)
    for_s = top.get("for", _span, 60.0)
    nothing: dict[str, Any] = {}
    model = top.get("model", _dict, nothing)
    _Table(f"{name}: [model]", model, _MODEL)
    none: list[dict[str, Any]] = []
    arrivals = [_arrivals(f"{name}: [[arrivals]]", one, for_s) for one in top.get("arrivals", _dicts, none)]
    policies = [_policy(f"{name}: [[policy]]", {**model, **one}) for one in top.get("policy", _dicts, none)]
    if not arrivals or not policies:
        raise Stop(f"{clean(name, 200)}: at least one [[arrivals]] and one [[policy]] are needed", 2)
    if len(policies) > POLICIES_MAX:
        raise Stop(f"{clean(name, 200)}: more than {POLICIES_MAX} policies", 2)
    return Scenario(
        title=top.get("title", str, name),
        for_s=for_s,
        deadline_s=top.get("deadline", _span, 1.0),
        arrivals=tuple(arrivals),
        policies=tuple(policies),
        seed=top.get("seed", int, 1),
    )


def _arrivals(where: str, values: Mapping[str, Any], for_s: float) -> Arrivals:
    one = _Table(where, values, _ARRIVALS)
    found = Arrivals(
        name=one.get("name", str, "callers"),
        rate_per_s=one.get("rate", rate_per_s, 0.0),
        burst=one.get("burst", _count, 0),
        from_s=one.get("from", duration_s, 0.0),
        until_s=one.get("until", duration_s, for_s),
        priority=one.get("priority", _priority, 5),
        even=one.get("even", bool, False),
    )
    if not found.rate_per_s and not found.burst:
        raise Stop(f"{where}: rate or burst is needed", 2)
    return found


def _policy(where: str, values: Mapping[str, Any]) -> Policy:
    one = _Table(where, values, _POLICY)
    service = Service(
        fixed_s=one.get("fixed", duration_s, 0.0),
        each_s=one.get("each", _span, 0.01),
        spread=one.get("spread", float, 0.0),
        regimes=one.get("slower", _regimes, ()),
    )
    return Policy(
        name=one.get("name", str, one.get("kind", str, "forebay")),
        plain=one.get("kind", _kind, False),
        queue_max=one.get("queue_max", _count, None),
        drops_oldest=one.get("full", _full, False),
        replicas=one.get("replicas", _count, 1),
        batch_max=one.get("batch_max", _count, 1),
        service=service,
        discipline=one.get("discipline", Discipline, Discipline.DEADLINE),
    )


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be a table")
    return cast("dict[str, Any]", value)


def _dicts(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise ValueError("must be tables: [[…]]")
    return [_dict(one) for one in cast("Sequence[Any]", value)]


def _span(value: Any) -> float:
    found = duration_s(value)
    if found <= 0:
        raise ValueError("must be more than 0")
    return found


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise ValueError("must be a whole number from 1 to 1,000,000")
    return value


def _priority(value: Any) -> int:
    if value in _PRIORITIES:
        return _PRIORITIES[value]
    if isinstance(value, int) and 0 <= value <= 9:
        return value
    raise ValueError("must be high, normal, low or 0 to 9")


def _kind(value: Any) -> bool:
    if value not in {"plain", "forebay"}:
        raise ValueError("must be plain or forebay")
    return bool(value == "plain")


def _full(value: Any) -> bool:
    if value not in {"drop_newest", "drop_oldest"}:
        raise ValueError("must be drop_newest or drop_oldest")
    return bool(value == "drop_oldest")


def _regimes(value: Any) -> tuple[tuple[float, float], ...]:
    return tuple((duration_s(at), float(factor)) for at, factor in value)
