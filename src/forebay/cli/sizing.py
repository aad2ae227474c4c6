"""What `forebay size` was asked, as a Load, Limits and a Platform: core decides, sizing_text prints."""

from forebay.cli.arrivals import Arrived, read_arrivals
from forebay.cli.asked import Asked
from forebay.cli.options import seconds_of
from forebay.cli.show import Stop
from forebay.cli.sizing_text import Answer, answer_of, growth_answer
from forebay.core.sizing.crew import QUANTILE
from forebay.core.sizing.findings import Limits, findings
from forebay.core.sizing.law import ServiceLaw, law_of_rate
from forebay.core.sizing.plan import Load, Sized, sized
from forebay.core.sizing.platform import Platform, platform_findings

ITEM_B = 1000  # assumed when nothing says how large an item is
GROWTH = ("in_", "out", "for_")
ROOM = ("item_size", "queue_max", "queue_bytes_max", "memory")  # what growth may meet


def answers(asked: Asked) -> list[Answer]:
    """Return the one answer. Raises Stop for flags that say too little, or what nobody can mean."""
    if asked.has("task", "api_key"):
        raise Stop(f"{asked.has('task', 'api_key')[0]} needs --url", 2)
    return [_grown(asked) if asked.has(*GROWTH) else _planned(asked)]


def _planned(asked: Asked) -> Answer:
    source = asked.text("arrivals")
    if source is not None and asked.has("peak"):
        raise Stop("--peak and --arrivals cannot both say what the peak is", 2)
    arrived = None if source is None else read_arrivals(source)
    load = load_of(asked, arrived)
    does = None if load is None else sized(load)
    limits = limits_of(asked, load)
    found = [*findings(limits), *platform_findings(platform_of(asked, load, does, limits))]
    if load is None and not asked.given:
        raise Stop("say at least --peak or --arrivals, or --in, --out and --for, or --url (see --help)", 2)
    return answer_of(load, does, found, arrived, asked.count("cpus", 100_000))


def load_of(asked: Asked, arrived: Arrived | None) -> Load | None:
    """Return what the flags say of the load, None when they say nothing of what comes."""
    peak = asked.rate("peak") if arrived is None else arrived.peaks.p99_per_s
    law = law_of(asked)
    if not peak:
        if arrived is not None:
            raise Stop("--arrivals: nothing ever came", 2)
        return None
    return Load(
        peak_per_s=peak,
        mean_per_s=None if arrived is None else arrived.mean_per_s,
        law=law,
        wait_max_s=asked.seconds("wait_max"),
        quantile=asked.number("quantile", 0, 1) or QUANTILE,
        batch_wait_s=asked.seconds("batch_wait", zero=True) or 0.0,
        item_b=asked.bytes("item_size") or ITEM_B,
        replicas=asked.count("replicas", 1_000_000),
    )


def law_of(asked: Asked) -> ServiceLaw | None:
    """Return how fast the flags say that a replica is, None when they do not."""
    text, per_s, batch_max = (
        asked.text("service"),
        asked.rate("per_replica"),
        asked.count("batch_max", 65_536),
    )
    if text is not None and per_s is not None:
        raise Stop("--service and --per-replica cannot both say how fast a replica is", 2)
    if text is None:
        if batch_max is not None:
            raise Stop("--batch-max needs --service", 2)
        return None if per_s is None else law_of_rate(per_s)
    fixed, plus, each = text.partition("+")
    if not plus and batch_max is not None and batch_max > 1:
        raise Stop('--batch-max needs --service as FIXED+EACH, like "20ms+2ms"', 2)
    fixed_s = seconds_of("--service", fixed) if plus else 0.0
    each_s = seconds_of("--service", each if plus else text)
    if not 0 < fixed_s + each_s < 1e9:
        raise Stop(f"--service: {text!r} is not more than 0", 2)
    return ServiceLaw(fixed_s=fixed_s, each_s=each_s, batch_max=batch_max or 1)


def limits_of(asked: Asked, load: Load | None) -> Limits:
    """Return what the flags say of limits."""
    law = None if load is None else load.law
    capacity = None if law is None or load is None else law.rate_per_s * (load.replicas or 0)
    return Limits(
        lease_s=asked.seconds("lease"),
        heartbeat_s=asked.seconds("heartbeat"),
        timeout_s=asked.seconds("timeout"),
        timeout_chosen=True,
        run_late_s=asked.seconds("p999"),
        ttl_s=asked.seconds("ttl"),
        grace_s=asked.seconds("grace", zero=True),
        attempts_max=asked.count("attempts", 1000),
        retry_waits_s=asked.several("backoff"),
        queue_max=asked.count("queue_max"),
        queue_bytes_max=asked.bytes("queue_bytes_max"),
        item_b=asked.bytes("item_size"),
        memory_b=asked.bytes("memory"),
        capacity_per_s=capacity or None,
        replica_per_s=None if law is None else law.rate_per_s,
        wait_max_s=asked.seconds("wait_max"),
        hpa_target=asked.count("hpa_target"),
        budget_per_s=asked.rate("budget"),
    )


def platform_of(asked: Asked, load: Load | None, does: Sized | None, limits: Limits) -> Platform:
    """Return what the flags say of a load balancer and an autoscaler, beside the load and its limits."""
    allowed_s = limits.timeout_s if limits.timeout_chosen else None
    return Platform(
        check_every_s=asked.seconds("health_check"),
        checks_failed=asked.count("unhealthy_after", 1000),
        drain_s=asked.seconds("drain", zero=True),
        cooldown_s=asked.seconds("cooldown", zero=True),
        start_s=asked.seconds("start", zero=True),
        replicas_max=asked.count("replicas_max", 1_000_000),
        peak_per_s=None if load is None else load.peak_per_s,
        replicas=None if load is None else load.replicas,
        replica_per_s=limits.replica_per_s,
        needed=None if does is None else does.needed,
        run_late_s=limits.run_late_s if limits.run_late_s is not None else allowed_s,
        queue_max=limits.queue_max,
        wait_max_s=limits.wait_max_s,
    )


def _grown(asked: Asked) -> Answer:
    asked.only((*GROWTH, *ROOM), "--in, --out and --for")
    arrives, leaves, lasts_s = asked.rate("in_"), asked.rate("out"), asked.seconds("for_")
    if arrives is None or leaves is None or lasts_s is None:
        raise Stop("growth needs --in, --out and --for", 2)
    given_b = asked.bytes("item_size")
    item_b = given_b or ITEM_B
    bounds = {name: asked.bytes(name) for name in ("queue_bytes_max", "memory")}
    room = {name: size // item_b for name, size in bounds.items() if size is not None}
    items_max = asked.count("queue_max")
    if items_max is not None:
        room["queue_max"] = items_max
    return growth_answer(arrives, leaves, lasts_s, item_b, room, assumed=given_b is None)
