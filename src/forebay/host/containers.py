"""Containers: what `docker inspect` and `docker stats` print, as readings."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, cast

from forebay.core.doctor.readings import Container

CONTAINERS_MAX: Final = 1000
_UNITS: Final = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", 1)},
}
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z]{1,3})")
_PERCENT: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)%")

Document = dict[str, Any]


def containers_of(text: str) -> list[Container]:
    """Return the containers of a text that holds answers of `docker inspect` and lines of `docker stats
    --no-stream --format json`, in any order; what both say of one name becomes one.

    Raises ValueError that says what the text should be.
    """
    found: dict[str, Container] = {}
    for document in _documents(text):
        one = _inspected(document) if "HostConfig" in document else _counted(document)
        known = found.get(one.name)
        found[one.name] = one if known is None else _joined(known, one)
    return list(found.values())[:CONTAINERS_MAX]


def _documents(text: str) -> Iterator[Document]:
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        try:
            value, place = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError):
            raise ValueError(
                "not JSON: want what docker inspect, or docker stats --format json, printed"
            ) from None
        many: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
        for one in many:
            if not isinstance(one, dict) or not ({"HostConfig", "CPUPerc"} & set(cast("Document", one))):
                raise ValueError("an entry is neither of docker inspect nor of docker stats")
            yield cast("Document", one)


def _inspected(document: Document) -> Container:
    host, state = _object(document["HostConfig"]), _object(document.get("State"))
    nano, quota, period = (_whole(host.get(name)) for name in ("NanoCpus", "CpuQuota", "CpuPeriod"))
    cpus = nano / 1e9 if nano else (quota / (period or 100_000) if quota > 0 else None)
    requests: object = host.get("DeviceRequests")
    asked: list[object] = cast("list[object]", requests) if isinstance(requests, list) else []
    return Container(
        name=str(document.get("Name") or document.get("Id") or "?").lstrip("/"),
        quota=cpus,
        memory_b=_whole(host.get("Memory")) or None,
        gpus=_gpus(asked),
        oom_killed=state.get("OOMKilled") is True,
        restarts=_whole(document.get("RestartCount")),
    )


def _gpus(asked: list[object]) -> int:
    total = 0
    for one in asked:
        entry = _object(one)
        count = entry.get("Count")
        if count == -1:
            return -1
        named: object = entry.get("DeviceIDs")
        total += len(cast("list[object]", named)) if isinstance(named, list) else _whole(count)
    return total


def _object(value: object) -> Document:
    return cast("Document", value) if isinstance(value, dict) else {}


def _counted(document: Document) -> Container:
    percent = _PERCENT.fullmatch(str(document.get("CPUPerc", "")).strip())
    used = str(document.get("MemUsage", "")).partition("/")[0].strip()
    return Container(
        name=str(document.get("Name") or document.get("ID") or "?"),
        used=float(percent[1]) / 100 if percent else None,
        used_b=_size(used),
    )


def _joined(one: Container, other: Container) -> Container:
    counted, inspected = (one, other) if other.used is None else (other, one)
    return inspected._replace(used=counted.used, used_b=counted.used_b)


def _size(text: str) -> int | None:
    found = _SIZE.fullmatch(text)
    unit = None if found is None else _UNITS.get(found[2].upper())
    return None if found is None or unit is None else int(float(found[1]) * unit)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
