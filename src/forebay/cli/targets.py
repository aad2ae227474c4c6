"""targets_of: the file of targets that `forebay verify` reads, with sentences for what is wrong in it."""

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, cast

from forebay.cli.show import Stop, clean
from forebay.core.units import duration_s
from forebay.core.verifying import TAKES, Target

FILE_MAX_B = 1024 * 1024
TARGETS_MAX = 1000
PROBES_MAX = 20
LOOKS_MAX = 100_000
FOR_S, EVERY_S = 60.0, 1.0
_FIELDS = ("name", "metric", "labels", "take", "of", "probe", "payload", "absent", "least", "most", "below")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")


class Targets(NamedTuple):
    """A file of targets: how long to look and how often, what must hold, what each probe sends."""

    for_s: float
    every_s: float
    targets: list[Target]
    payloads: dict[str, Any]  # of probes, by the name of their target


def targets_of(name: str) -> Targets:
    """Return what a file says. Raises Stop naming the place, the rule and the value."""
    document = _document(name)
    unknown = sorted(set(document) - {"for", "every", "target"})
    if unknown:
        raise Stop(f"{name}: {unknown[0]}: unknown; there are for, every and [[target]]", 2)
    rows: object = document.get("target")
    many: list[object] = cast("list[object]", rows) if isinstance(rows, list) else []
    if not 1 <= len(many) <= TARGETS_MAX:
        raise Stop(f"{name}: [[target]]: wants 1 to {TARGETS_MAX:,} of them", 2)
    for_s = _seconds(name, "for", document.get("for", FOR_S))
    every_s = _seconds(name, "every", document.get("every", EVERY_S))
    if every_s <= 0 or for_s / every_s > LOOKS_MAX:
        raise Stop(f"{name}: for, every: wants 1 to {LOOKS_MAX:,} looks", 2)
    found = [_target(f"{name}: target {place}", row) for place, row in enumerate(many, 1)]
    names = [target.name for target, _ in found]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise Stop(f"{name}: name: {clean(twice, 100)} is there twice", 2)
    payloads = {target.name: payload for target, payload in found if target.probe}
    if len(payloads) > PROBES_MAX:
        raise Stop(f"{name}: probe: {len(payloads)} of them, and at most {PROBES_MAX} are sent", 2)
    return Targets(for_s, every_s, [target for target, _ in found], payloads)


def _document(name: str) -> dict[str, Any]:
    try:
        with Path(name).open("rb") as file:
            text = file.read(FILE_MAX_B + 1)
    except OSError as error:
        raise Stop(f"--targets {clean(name, 200)}: {error.strerror}", 2) from None
    if len(text) > FILE_MAX_B:
        raise Stop(f"--targets {clean(name, 200)}: larger than {FILE_MAX_B:,} bytes", 2)
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise Stop(f"--targets {clean(name, 200)}: not TOML: {clean(error, 200)}", 2) from None


def _target(where: str, row: object) -> tuple[Target, Any]:
    fields: dict[str, Any] = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    unknown = sorted(set(fields) - set(_FIELDS))
    if unknown:
        raise Stop(f"{where}: {clean(unknown[0], 100)}: unknown; there are {', '.join(_FIELDS)}", 2)
    name, metric, probe, of = (_text(where, fields, key) for key in ("name", "metric", "probe", "of"))
    if not name:
        raise Stop(f"{where}: name: missing", 2)
    where = f"{where} ({clean(name, 60)})"
    if bool(metric) == bool(probe):
        raise Stop(f"{where}: wants either metric or probe", 2)
    if metric and not _METRIC.fullmatch(metric):
        raise Stop(f"{where}: metric: {clean(metric, 100)!r} is no name of a metric", 2)
    take = _text(where, fields, "take") or ("p95" if probe else "max")
    if take not in TAKES or (probe and take in ("increase", "per_s", "share", "last")):
        raise Stop(f"{where}: take: {clean(take, 100)!r} is not one of {', '.join(TAKES)}", 2)
    if (take == "share") != bool(of):
        raise Stop(f'{where}: of: goes with take = "share", and only with it', 2)
    bounds = {key: _number(where, key, fields[key]) for key in ("least", "most", "below") if key in fields}
    if not bounds:
        raise Stop(f"{where}: wants least, most or below", 2)
    absent = _number(where, "absent", fields["absent"]) if "absent" in fields else None
    return Target(name, take, metric, _labels(where, fields), of, probe, absent, **bounds), fields.get(
        "payload"
    )


def _labels(where: str, fields: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    labels: object = fields.get("labels", {})
    pairs: dict[str, object] = cast("dict[str, object]", labels) if isinstance(labels, dict) else {"": None}
    if not all(isinstance(value, str) for value in pairs.values()):
        raise Stop(f'{where}: labels: wants texts, like {{ task = "Detect" }}', 2)
    return tuple(sorted((key, str(value)) for key, value in pairs.items()))


def _text(where: str, fields: dict[str, Any], key: str) -> str:
    found: object = fields.get(key, "")
    if not isinstance(found, str):
        raise Stop(f"{where}: {key}: {clean(found, 100)} is not a text", 2)
    return found


def _number(where: str, key: str, value: object) -> float:
    """Return a bound: a number, or a duration in seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        return float(value)
    if isinstance(value, str):
        return _seconds(where, key, value)
    raise Stop(f"{where}: {key}: {clean(value, 100)} is neither a number nor a time", 2)


def _seconds(where: str, key: str, value: object) -> float:
    try:
        return duration_s(value)
    except ValueError as error:
        raise Stop(f"{where}: {key}: {error}", 2) from None
