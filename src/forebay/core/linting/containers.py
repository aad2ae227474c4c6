"""Rules over containers: Kubernetes objects and compose files."""

import re
from collections.abc import Iterator
from typing import Final

from forebay.core.linting.findings import Known, Lint
from forebay.core.linting.outline import Entry, all_of, below, number_of, value_of, yaml_documents
from forebay.core.units import duration_s, size_b

HPA_SHARE: Final = 0.8  # as in sizing
COMPOSE_GRACE_S: Final = 10.0  # when nothing is said
POD_GRACE_S: Final = 30.0
_REMOVED: Final = frozenset({"autoscaling/v2beta1", "autoscaling/v2beta2"})
_UNITS: Final = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def kubernetes_rules(text: str, known: Known) -> Iterator[Lint]:
    """Yield what is wrong with the objects of a file."""
    for entries in yaml_documents(text):
        kind, api = value_of(entries, "kind"), value_of(entries, "apiVersion")
        if kind is None or api is None:
            continue
        if kind.value == "HorizontalPodAutoscaler":
            yield from _autoscaler(entries, api, known)
        if kind.value in {"Deployment", "StatefulSet", "Pod"} and _runs_forebay(entries):
            yield from _pods(kind, entries, known)


def _autoscaler(entries: list[Entry], api: Entry, known: Known) -> Iterator[Lint]:
    if api.value in _REMOVED:
        yield Lint(
            "hpa-removed-api", api.line, f"{api.value} is gone since Kubernetes 1.26", "autoscaling/v2"
        )
    least, most = value_of(entries, "spec", "minReplicas"), value_of(entries, "spec", "maxReplicas")
    if most is not None and number_of(most) is not None and number_of(least) == number_of(most):
        yield Lint(
            "hpa-cannot-grow", most.line, f"always {most.value} replicas", "maxReplicas above minReplicas"
        )
    if known.replica_per_s is None or known.wait_max_s is None:
        return
    may = max(1.0, HPA_SHARE * known.replica_per_s * known.wait_max_s)
    for target in (one for one in entries if one.key == "averageValue"):
        wanted = number_of(target)
        if wanted is not None and wanted > may + 1e-9:
            yield Lint(
                "hpa-target-waits",
                target.line,
                f"{wanted:g} waiting for each replica take {wanted / known.replica_per_s:.3g} s, "
                f"and {known.wait_max_s:g} s are allowed",
                f"averageValue: {int(may)} (forebay size)",
            )


def _runs_forebay(entries: list[Entry]) -> bool:
    return any(
        re.search(r"\bforebay\b", one.value) is not None
        for one in entries
        if {"command", "args", "image"} & set(one.path)
    )


def _pods(kind: Entry, entries: list[Entry], known: Known) -> Iterator[Lint]:
    told = next((one for one in entries if one.key == "terminationGracePeriodSeconds"), None)
    grace_s = POD_GRACE_S if told is None else number_of(told)
    if grace_s is not None and grace_s <= known.grace_s:
        yield Lint(
            "pod-grace-too-short",
            (told or kind).line,
            f"a pod is killed {grace_s:g} s after it was asked to end, and its work has {known.grace_s:g} s",
            f"terminationGracePeriodSeconds: {known.grace_s + 15:g}",
        )


def compose_rules(text: str, known: Known) -> Iterator[Lint]:
    """Yield what is wrong with the services of a compose file."""
    for entries in yaml_documents(text):
        for root in dict.fromkeys(one.path[:2] for one in entries if one.path[:1] == ("services",)):
            if len(root) == 2:
                yield from _service(root, below(entries, root), known)


def _service(root: tuple[str, ...], entries: list[Entry], known: Known) -> Iterator[Lint]:
    name, env = root[1], environment_of(root, entries)
    if _runs_forebay(entries):
        told = value_of(entries, *root, "stop_grace_period")
        grace_s = COMPOSE_GRACE_S if told is None else seconds_of(told.value)
        if grace_s is not None and grace_s <= known.grace_s:
            yield Lint(
                "compose-grace-too-short",
                (told or entries[0]).line,
                f"{name} is killed {grace_s:g} s after it was asked to end; its work has {known.grace_s:g} s",
                f"stop_grace_period: {known.grace_s + 15:g}s",
            )
    limits = (*root, "deploy", "resources", "limits")
    cpus = value_of(entries, *limits, "cpus") or value_of(entries, *root, "cpus")
    workers, may = number_of(env.get("WORKER_CONCURRENCY")), number_of(cpus)
    if cpus is not None and workers is not None and may is not None and may < workers:
        yield Lint(
            "compose-few-cpus",
            cpus.line,
            f"{name}: {workers:g} workers on {may:g} CPUs",
            f'cpus: "{workers:g}", or fewer workers; forebay doctor says what they use',
        )
    memory = value_of(entries, *limits, "memory") or value_of(entries, *root, "mem_limit")
    yield from _memory(name, env, memory, known)
    yield from crossed(env)


def _memory(name: str, env: dict[str, Entry], memory: Entry | None, known: Known) -> Iterator[Lint]:
    items = number_of(env.get("QUEUE_MAXSIZE"))
    limit_b = None if memory is None else bytes_of(memory.value)
    if memory is None or limit_b is None or items is None or known.item_b is None:
        return
    if items * known.item_b > limit_b:
        yield Lint(
            "compose-queue-over-memory",
            env["QUEUE_MAXSIZE"].line,
            f"{name}: {items:,.0f} items of {known.item_b:,} bytes are {items * known.item_b / 1e9:.3g} GB, "
            f"and the limit is {limit_b / 1e9:.3g} GB",
            f"QUEUE_MAXSIZE={int(limit_b * 0.8 / known.item_b)}, or FOREBAY_QUEUE_BYTES_MAX, in bytes",
        )


def crossed(env: dict[str, Entry]) -> Iterator[Lint]:
    """Yield what is wrong with thresholds of a queue of frames in variables."""
    drop = env.get("DROP_THRESHOLD")
    degrade = next((env[name] for name in ("DEGRADE_THRESHOLD", "DEGRADE_AT") if name in env), None)
    at, from_ = number_of(drop), number_of(degrade)
    if degrade is not None and at is not None and from_ is not None and from_ >= at:
        yield Lint(
            "thresholds-crossed",
            degrade.line,
            f"from {at:g} on frames are dropped: {from_:g} is never reached",
            "degrade below the number from which on frames are dropped",
        )


def environment_of(root: tuple[str, ...], entries: list[Entry]) -> dict[str, Entry]:
    """Return the variables of a service, as a map or as a list of NAME=VALUE."""
    found = {one.key: one for one in all_of(entries, *root, "environment", "*") if not one.key.isdecimal()}
    for one in below(entries, (*root, "environment")):
        name, sign, value = one.value.partition("=")
        if sign and re.fullmatch(r"\w+", name):
            found[name] = one._replace(value=value.strip("\"'"))
    return found


def seconds_of(text: str) -> float | None:
    """Return a duration as compose and systemd write it ("1m30s", "45"), None for what is none."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(h|min|m|ms|us|s|sec|$)", text.strip())
    if not parts or re.sub(r"\d+(?:\.\d+)?\s*(h|min|m|ms|us|s|sec)?\s*", "", text.strip()):
        return None
    unit = {"": "s", "min": "m", "sec": "s"}
    try:
        return sum(duration_s(f"{number}{unit.get(name, name)}") for number, name in parts if name != "us")
    except ValueError:
        return None


def bytes_of(text: str) -> float | None:
    """Return a size as compose and Kubernetes write it ("4G", "512m", "2Gi"), None for what is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", text.strip().lower())
    if found is not None:
        return float(found[1]) * _UNITS.get(found[2] or "", 1.0)
    try:
        return float(size_b(text))
    except ValueError:
        return None
