"""sized(): a load and a promise -> queue, replicas, autoscaler target; and whether what is there will do."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from forebay.core.sizing import words
from forebay.core.sizing.crew import QUANTILE, replicas_for_load, replicas_for_wait, wait_of
from forebay.core.sizing.erlang import Wait
from forebay.core.sizing.growth import lost_share
from forebay.core.sizing.law import ServiceLaw
from forebay.core.sizing.little import Holding, holding

HPA_SHARE = 0.8  # of the wait: an autoscaler tolerates a tenth above its target, and replicas take time


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What comes, what serves it and what was promised. None: not known, and what needs it is left out."""

    peak_per_s: float
    mean_per_s: float | None = None
    law: ServiceLaw | None = None
    spread: float = 1.0  # squared coefficient of variation of a run: 1 exponential, 0 always the same
    wait_max_s: float | None = None  # in line, without the service
    quantile: float = QUANTILE  # of the items that must not wait longer
    batch_wait_s: float = 0.0
    item_b: int = 0
    replicas: int | None = None  # there are so many


class Hpa(NamedTuple):
    """An autoscaler on the jobs that wait for each replica."""

    target: int  # AverageValue: waiting items for each replica
    replicas_min: int
    replicas_max: int


class Verdict(NamedTuple):
    """Whether the promise is kept, in one sentence. `good` False also where no number of replicas does."""

    good: bool
    text: str


class Sized(NamedTuple):
    """What a load needs. None: what it follows from was not given."""

    queue: Holding | None
    for_load: int | None  # replicas that do not fall behind
    needed: int | None  # replicas that keep the promise
    wait: Wait | None  # with those
    wait_now: Wait | None  # with the replicas there are
    lost: float | None  # share that is lost with the replicas there are, else with one
    hpa: Hpa | None
    queue_max: int | None  # jobs held, those that run included: what the setting of that name counts
    verdict: Verdict


def sized(load: Load) -> Sized:
    """Return what the load needs, and the verdict on what there is."""
    law, wait_max_s = load.law, load.wait_max_s
    service_s = 0.0 if law is None else law.run_s(law.usual_batch(load.peak_per_s / (load.replicas or 1)))
    queue = None if wait_max_s is None else holding(load.peak_per_s, wait_max_s, service_s)
    if law is None:
        queue_max = None if queue is None else queue.bound
        return Sized(queue, None, None, None, None, None, None, queue_max, _without_service(load, queue))
    for_load = replicas_for_load(law, load.peak_per_s)
    needed: int | None = for_load + (for_load * law.rate_per_s <= load.peak_per_s)  # full is not enough
    if wait_max_s is not None:
        needed = replicas_for_wait(
            law,
            load.peak_per_s,
            wait_max_s,
            quantile=load.quantile,
            spread=load.spread,
            batch_wait_s=load.batch_wait_s,
        )
    wait_now = None if load.replicas is None else _wait(load, law, load.replicas)
    slots = (load.replicas or needed or for_load) * law.slots
    return Sized(
        queue=queue,
        for_load=for_load,
        needed=needed,
        wait=None if needed is None else _wait(load, law, needed),
        wait_now=wait_now,
        lost=lost_share(load.peak_per_s, law.rate_per_s * (load.replicas or 1)),
        hpa=None if wait_max_s is None or needed is None else hpa_of(load, law, wait_max_s, needed),
        queue_max=None if queue is None else queue.bound + slots,
        verdict=_verdict(load, law, needed, wait_now),
    )


def hpa_of(load: Load, law: ServiceLaw, wait_max_s: float, replicas_max: int) -> Hpa:
    """Return the autoscaler's target: the items that one replica serves in 0.8 of the longest wait.

    At 4,000/s and 50 ms a line of 200 is the whole wait, so the target is 160; at 2,000/s it is 80.
    """
    target = max(1, math.floor(HPA_SHARE * law.rate_per_s * wait_max_s + 1e-9))
    least = 1 if load.mean_per_s is None else replicas_for_load(law, load.mean_per_s)
    return Hpa(target, min(least, replicas_max), replicas_max)


def _wait(load: Load, law: ServiceLaw, replicas: int) -> Wait:
    return wait_of(
        law,
        load.peak_per_s,
        replicas,
        quantile=load.quantile,
        spread=load.spread,
        batch_wait_s=load.batch_wait_s,
    )


def _without_service(load: Load, queue: Holding | None) -> Verdict:
    if queue is None:
        return Verdict(True, f"a peak of {words.rate(load.peak_per_s)}")
    return Verdict(True, f"a queue of {queue.bound} holds a peak of {words.rate(load.peak_per_s)}")


def _verdict(load: Load, law: ServiceLaw, needed: int | None, now: Wait | None) -> Verdict:
    late = f"p{load.quantile * 100:g}"
    if needed is None:
        why = f"the wait for company is {words.span(load.batch_wait_s)}" if load.batch_wait_s else "too short"
        return Verdict(False, f"no number of replicas keeps {words.span(load.wait_max_s or 0.0)}: {why}")
    one = law.rate_per_s
    if load.replicas is None or now is None:
        lost = lost_share(load.peak_per_s, one)
        alone = f"; one alone drops {words.share(lost)}" if lost else ""
        return Verdict(True, f"needs {_replicas(needed)}{alone}")
    lost = lost_share(load.peak_per_s, one * load.replicas)
    if lost:
        does = f"{_replicas(load.replicas)} can do {words.rate(one * load.replicas)}"
        text = f"needs {_replicas(needed)} or drops {words.share(lost)}: {does}"
        return Verdict(False, f"{text}, and a longer queue only waits longer")
    if load.wait_max_s is not None and now.late_s > load.wait_max_s:
        text = f"needs {_replicas(needed)}: with {load.replicas} the {late} waits {words.span(now.late_s)}"
        return Verdict(False, f"{text}, not {words.span(load.wait_max_s)}")
    busy = f"{words.share(now.utilisation)} busy"
    return Verdict(True, f"{_replicas(load.replicas)} will do: {busy}, {late} waits {words.span(now.late_s)}")


def _replicas(number: int) -> str:
    return f"{number:,} replica{'s' if number != 1 else ''}"
