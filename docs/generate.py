"""Write the pages of docs/ that are made from code; with --check, say whether they are up to date.

Exit code 1 and one line per stale page when a check fails.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import forebay
import forebay.sources.failures
from forebay.config import Field, describe_settings
from forebay.conformance import CHECKS
from forebay.conformance.subject import LACKS
from forebay.core.alerting import ALERTS, prometheus_rules, promql, span
from forebay.core.lifecycle import FINAL, STATUS, TRANSITIONS, Event, State
from forebay.core.linting import RULES
from forebay.deliveries import message_brokers
from forebay.engines import shipped
from forebay.errors import ForebayError
from forebay.ports.broker import Capabilities

DOCS = Path(__file__).parent

STATE_MEANING = {
    State.SCHEDULED: "waits for its `run_at`, or was deferred",
    State.QUEUED: "may run now",
    State.RUNNING: "leased by a node, proven by a fence",
    State.RETRYING: "failed, waits out its backoff",
    State.SUCCEEDED: "has its result",
    State.DEAD: "a dead letter: attempts used up, permanent failure, or poison",
    State.CANCELLED: "somebody cancelled it",
    State.EXPIRED: "its ttl passed while it waited, or its deadline passed",
}

EVENT_MEANING = {
    Event.DUE: ("the time it waited for has come", "-"),
    Event.LEASED: ("granted to a node; the fence grows", "charged here"),
    Event.COMPLETED: ("the handler gave an output", "kept"),
    Event.FAILED: ("the attempt failed and will be tried again after its backoff", "kept"),
    Event.EXHAUSTED: ("the attempt failed and will not be tried again", "kept"),
    Event.RELEASED: ("handed back untouched, by a drain", "refunded; hand-backs have a cap of their own"),
    Event.DEFERRED: ("handed back until a time", "refunded; the same cap"),
    Event.SUSPECTED: (
        "its child died with others in the batch; it runs alone next",
        "refunded; the same cap",
    ),
    Event.LOST: ("the node died, or the lease ran out", "kept, no backoff"),
    Event.TTL_PASSED: ("it waited longer than its ttl", "-"),
    Event.DEADLINE_PASSED: ("nothing of it may run after this instant", "-"),
    Event.CANCELLED: ("cancelled: waiting at once, running when its holder has stopped", "-"),
}

# What the signature of @app.task cannot say: the default when it is None, the unit or form, the meaning.
ARGUMENTS = {
    "name": ("the name of the function or class", "text", "what clients call it"),
    "batch_max": ("", "items", "most items of one `predict`; 1 for functions"),
    "batch_wait": ("`5ms` when `batch_max` is above 1", "time", "how long an item in hand waits for company"),
    "timeout": ("", "time", "longest run of one call; then its process is killed"),
    "load_timeout": ("", "time", "longest start of a worker: import, `load`, `warm_up`"),
    "attempts_max": ("", "attempts", "after so many failed ones it is dead; a job may name its own"),
    "backoff": (
        "`1s`",
        "time",
        "pause after the first failure; doubles up to 1 h; half of it is certain, half drawn",
    ),
    "ttl": ("", "time", "how long a job may wait, from its `run_at`; a job may name its own"),
    "deadline": ("none", "time", "until when it must be done, from the submission; a job may name its own"),
    "discipline": (
        "",
        "text",
        "of waiting requests: `deadline`, `newest` or `codel`; see [requests](requests.md#disciplines)",
    ),
    "wait_target": (
        "measured: a full batch's run",
        "time",
        "with `newest` and `codel`: a queue stands in which everybody waits longer ...",
    ),
    "wait_interval": ("ten targets, at least 0.1 s", "time", "... for so long"),
    "queue_max": ("", "jobs", "most jobs held; the setting `queue_max` if that is less"),
    "queue_bytes_max": ("", "size", "most bytes held; the setting `queue_bytes_max` if that is less"),
    "replicas": (
        "the setting `workers`",
        "processes",
        'workers of this class, or a range like `"1..4"`: see [scaling](scaling.md); refused on a function',
    ),
    "devices": (
        "a GPU each, else `cpu`",
        "names",
        'of a class: `"cpu"`, `"cuda"`, `"cuda:1"` or a list',
    ),
    "version": ("", "text", "shown with the task"),
    "order": (
        "",
        "text",
        "inside a priority: `arrival` (first ready first) or `deadline`; see [order](order.md)",
    ),
    "reserve": (
        "",
        "share",
        "of the replicas that only jobs of priority `high` or more urgent may use; see [order](order.md)",
    ),
    "priority": (
        "",
        "name or 0 to 9",
        "`high`, `normal`, `low`; 0 is most urgent; a job may name its own",
    ),
    "concurrency": ("32 for an async function, else 1", "calls", "async calls at once in one worker"),
    "deaths_max": ("", "deaths", "so many deaths of its process while it ran alone make it dead"),
    "quarantine_deaths": (
        "`deaths_max` + 1",
        "deaths",
        "of one input, over all jobs, after which it is refused; 0: never: [quarantine](dead-letters.md)",
    ),
    "recycle_after": (
        "never",
        "items",
        "replace a worker after so many; functions: the least of all",
    ),
    "recycle_memory": ("never", "size", "replace a worker that holds more resident memory"),
    "split": ("", "flag", "halve a batch that failed to find the bad item"),
    "coalesce": (
        "`False`, `True` with `cache`",
        "flag",
        "equal submissions join a job that has not ended: [Equal work](#equal-work)",
    ),
    "cache": ("none", "time", "and one that succeeded, for so long"),
    "on_version": (
        "`run`",
        "name",
        "a job of another `version`: `run` it, let it `wait` for its own, `fail` it: [Versions](#versions)",
    ),
    "retention": (
        "the setting `retention`",
        "time",
        "how long its jobs are kept after their end: [Kept](#how-long-jobs-are-kept)",
    ),
    "retention_failed": ("the setting `retention_failed`", "time", "how long its dead letters are kept"),
    "breaker": (
        "none, the default one with `fallback`",
        "`forebay.Breaker`",
        "stops calls that keep failing: [breakers](breakers.md)",
    ),
    "fallback": (
        "none",
        "task or JSON",
        "what answers while the breaker is open: [on a task](breakers.md#on-a-task)",
    ),
    "variants": (
        "",
        "classes, functions or `forebay.Variant`",
        "[cheaper ways](variants.md) to do it, best first, while its reservoir is full",
    ),
    "variants_stay": ("", "time", "how long one of them runs at least before a better one"),
    "retry_on": ("all", "exceptions", "only these are tried again"),
    "permanent_on": ("none", "exceptions", "these are never tried again; stronger than `retry_on`"),
}


def arguments() -> str:
    """Return the table of the arguments of @app.task. Raises KeyError for one that has no words here."""
    found = inspect.signature(forebay.App.task).parameters
    named = {n: p.default for n, p in found.items() if p.kind is p.KEYWORD_ONLY}
    if gone := set(ARGUMENTS) - set(named):
        raise KeyError(f"not an argument of @app.task any more: {sorted(gone)}")
    rows = ["| argument | default | in | is |", "|---|---|---|---|"]
    for name, default in named.items():
        otherwise, unit, meaning = ARGUMENTS[name]
        rows.append(f"| `{name}` | {otherwise or f'`{default}`'} | {unit} | {meaning} |")
    return "\n".join(rows)


def tasks() -> str:
    """Return the page on tasks with the table of arguments made anew; the rest is written by hand."""
    text = (DOCS / "tasks.md").read_text(encoding="utf-8")
    begin, end = "<!-- arguments: made by docs/generate.py -->\n", "<!-- end of arguments -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{arguments()}\n\n{end}{rest.partition(end)[2]}"


def lifecycle() -> str:
    """Return the page on the life of a job, drawn from the table."""
    lines = [
        "# The life of a job",
        "",
        "Made from `core/lifecycle.py` by `python docs/generate.py`; do not edit.",
        "",
        "A state changes only along an arrow.",
        "A final state is never left: a redrive makes a new, linked job.",
        "`queued` means ready now.",
        "Jobs that wait for a time are `scheduled` or `retrying`, and time alone moves them.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> scheduled",
        "    [*] --> queued",
    ]
    lines += [
        f"    {a.value} --> {b.value}: {e.value}" for a, rows in TRANSITIONS.items() for e, b in rows.items()
    ]
    lines += [f"    {state.value} --> [*]" for state in State if state in FINAL]
    lines += ["```", "", "## States", "", "| state | `status` in HTTP | means | final |", "|---|---|---|---|"]
    lines += [
        f"| `{s.value}` | `{STATUS[s]}` | {STATE_MEANING[s]} | {'yes' if s in FINAL else 'no'} |"
        for s in State
    ]
    lines += ["", "## Events", "", "| event | means | the attempt is |", "|---|---|---|"]
    lines += [f"| `{e.value}` | {EVENT_MEANING[e][0]} | {EVENT_MEANING[e][1]} |" for e in Event]
    return "\n".join([*lines, ""])


def subclasses(kind: type[ForebayError]) -> list[type[ForebayError]]:
    """Return every error below `kind`, each once, in the order of its declaration."""
    found = [kind]
    for child in kind.__subclasses__():
        if child.__module__ in {"forebay.errors", "forebay.sources.failures"}:
            found += subclasses(child)
    return list(dict.fromkeys(found))


def first_line(value: object) -> str:
    """Return the first sentence of a docstring, on one line, fit for a table."""
    text = " ".join((value.__doc__ or "").strip().split("\n\n")[0].split())
    return (re.match(r".*?\.(?= |$)", text) or re.match(".*", text))[0].replace("|", "\\|")  # type: ignore[index]


def reference() -> str:
    """Return the page on public names and error codes, made from the code."""
    lines = [
        "# Reference",
        "",
        "Made from the code by `python docs/generate.py`; do not edit.",
        "",
        "## Names",
        "",
        "| name | is |",
        "|---|---|",
    ]
    lines += [
        f"| `forebay.{name}` | {first_line(getattr(forebay, name))} |" for name in sorted(forebay.__all__)
    ]
    lines += [
        "",
        "## Errors",
        "",
        "`code` is for programs and stays; the text is for people and may change.",
        "",
        "| `code` | HTTP | means | class |",
        "|---|---|---|---|",
    ]
    errors = sorted(subclasses(ForebayError)[1:], key=lambda error: (error.status, error.code))
    lines += [f"| `{e.code}` | {e.status} | {first_line(e)} | `{e.__name__}` |" for e in errors]
    return "\n".join([*lines, ""])


def settings() -> str:
    """Return the page on settings, made from the schema that checks them."""
    lines = [
        "# Settings",
        "",
        "Made from `config.py` by `python docs/generate.py`; do not edit.",
        "",
        "Defaults, then `forebay.toml` in the working directory (or the file that `FOREBAY_CONFIG` names),",
        "then the environment, then flags. An unknown name is refused, with the nearest known one.",
        "`WORKER_CONCURRENCY` and `QUEUE_MAXSIZE` are honoured as `workers` and `queue_max`.",
        'Times are seconds or texts like `"250ms"`, `"5m"`, `"12h"`; sizes bytes or texts like `"64MiB"`.',
        "What Kubernetes says of a Service (`FOREBAY_SERVICE_HOST` and its like) is no setting.",
        "",
        "| setting | environment | default | is |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{f.name}` | `{f.env}` | {otherwise(f)} | {f.about.text} |" for f in describe_settings()]
    return "\n".join([*lines, ""])


def otherwise(field: Field) -> str:
    """Return what a setting is when nobody sets it, as people write it: `30s`, `1GiB`, none."""
    value, kind = field.default, field.about.kind
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`"
    if kind == "duration":
        step, unit = next((one for one in ((3600, "h"), (60, "m")) if value % one[0] == 0), (1, "s"))
        return f"`{value / step:g}{unit}`"
    return f"`{field.about.bound(value)}`" if kind == "size" else f"`{str(value).lower()}`"


def engine_rows() -> list[tuple[str, list[str]]]:
    """Return what the engines say of themselves, a row each."""
    all_of = shipped()
    served = [engine.served for engine in all_of]
    return [
        ("setting `broker`", [engine.url for engine in all_of]),
        ("to install", [f'`pip install "forebay[{e.extra}]"`' if e.extra else "nothing" for e in all_of]),
        ("`forebay api` and `forebay work`", ["yes" if can.shared else "no" for can in served]),
        ("servers on one store", ["any number" if can.shared else "one" for can in served]),
        (
            "survives",
            [
                ("`kill -9`, power loss" if can.durable else "nothing")
                + (", and the loss of this machine" if can.durable and can.shared else "")
                + (f", with {engine.durable_with}" if engine.durable_with else "")
                for engine in all_of
                for can in [engine.served]
            ],
        ),
        ("jobs are leased in the exact order", ["yes" if can.ordered else "no" for can in served]),
        ("time of leases, delays and limits", [engine.clock for engine in all_of]),
        (
            "after a whole server died its jobs run again",
            [
                "when their lease ends (30 s, setting `lease`)" if c.shared else "at the next start"
                for c in served
            ],
        ),
        (
            "counts that admission reads",
            [
                "exact for what this server does; up to about a second old for what others do"
                if can.shared
                else "exact"
                for can in served
            ],
        ),
        ("checks of the contract that do not apply", [not_applying(engine.checked) for engine in all_of]),
    ]


def not_applying(can: Capabilities) -> str:
    """Return the checks that do not apply to an engine that says this of itself, by the reason."""
    lacking = [(check.lacks_of(can, reopens=True), check.name) for check in CHECKS]
    needs = sorted({need for need, _ in lacking if need is not None})
    return (
        "; ".join(
            f"{', '.join(f'`{name}`' for need, name in lacking if need == each)}: {LACKS[each]}"
            for each in needs
        )
        or "none"
    )


def broker_rows() -> list[tuple[str, list[str]]]:
    """Return what the message brokers say of themselves, a row each."""
    all_of = message_brokers()
    traits = [one.traits() for one in all_of]
    return [
        ("setting `broker`", [one.url for one in all_of]),
        ("to install, beside the store's", [f'`pip install "forebay[{one.extra}]"`' for one in all_of]),
        ("hints survive its restart", ["yes" if can.durable else "no" for can in traits]),
        ("hints are acknowledged", ["one by one" if can.each else "up to a place" for can in traits]),
        ("what may not run yet stays away", ["yes" if can.delays else "no" for can in traits]),
        ("how many hints wait is known", ["yes" if can.counted else "no" for can in traits]),
        ("to know", [can.note or "" for can in traits]),
    ]


def table(names: Sequence[str], rows: Sequence[tuple[str, list[str]]]) -> str:
    """Return a table of what is said of each name."""
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    return "\n".join([*lines, *(f"| {what} | {' | '.join(cells)} |" for what, cells in rows)])


def with_table(text: str, mark: str, made: str) -> str:
    """Return a page with one of its tables made anew."""
    begin, end = f"<!-- {mark}: made by docs/generate.py -->\n", f"<!-- end of {mark} -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{made}\n\n{end}{rest.partition(end)[2]}"


def engines() -> str:
    """Return the page on engines with its tables made anew; the rest is written by hand."""
    text = (DOCS / "engines.md").read_text(encoding="utf-8")
    text = with_table(text, "engines", table([one.name for one in shipped()], engine_rows()))
    return with_table(text, "brokers", table([one.name for one in message_brokers()], broker_rows()))


def alerts() -> str:
    """Return the page on alerts with its table made anew; the rest is written by hand."""
    text = (DOCS / "alerts.md").read_text(encoding="utf-8")
    lines = ["| alert | severity | fires when | held for | says |", "|---|---|---|---|---|"]
    lines += [
        f"| [`{one.name}`](#{one.name}) | {one.severity} | `{promql(one)}` | {span(one.for_s)} "
        f"| {one.says.format(subject='TASK')} |"
        for one in ALERTS
    ]
    return with_table(text, "alerts", "\n".join(lines))


def lint() -> str:
    """Return the page on lint with its table made anew."""
    text = (DOCS / "lint.md").read_text(encoding="utf-8")
    rows = [f"| `{name}` | {rule.level.name.lower()} | {rule.text} |" for name, rule in RULES.items()]
    return with_table(text, "lint", "\n".join(["| rule | level | says |", "|---|---|---|", *rows]))


PAGES: dict[str, Callable[[], str]] = {
    "../deploy/prometheus/forebay.rules.yml": prometheus_rules,
    "alerts.md": alerts,
    "engines.md": engines,
    "lifecycle.md": lifecycle,
    "lint.md": lint,
    "reference.md": reference,
    "settings.md": settings,
    "tasks.md": tasks,
}


def stale_pages() -> list[str]:
    """Return the names of pages that differ from what the code says now."""
    return [
        name
        for name, page in PAGES.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != page()
    ]


def main() -> int:
    """Write or check every page; return the exit code."""
    parser = argparse.ArgumentParser(description="Make the generated pages of docs/.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page is stale")
    if parser.parse_args().check:
        for name in (stale := stale_pages()):
            print(f"docs/{name} is stale: run python docs/generate.py")
        return 1 if stale else 0
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
