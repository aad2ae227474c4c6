"""The bars of the engines, and the tables and lines that a run prints."""

import statistics
from collections.abc import Sequence
from typing import Any

Figures = dict[str, Any]
Rows = dict[str, Figures]  # by row: forebay and the peers

COLUMNS = (
    ("through/s", "through_per_s", "{:,.0f}"),
    ("single/s", "single_per_s", "{:,.0f}"),
    ("cpu µs/job", "cpu_us", "{:,.0f}"),
    ("asked/job", "statements_per_job", "{:.2f}"),
    ("reads/job", "reads_per_job", "{:.2f}"),
    ("commands/job", "commands_per_job", "{:.1f}"),
    ("idle p50 ms", "idle_p50_ms", "{:.1f}"),
    ("p99 ms", "idle_p99_ms", "{:.1f}"),
    ("asked/job alone", "alone_statements_per_job", "{:.1f}"),
    ("reads/job alone", "alone_reads_per_job", "{:.1f}"),
    ("rest cpu %", "rest_cpu_percent", "{:.2f}"),
    ("asked/s at rest", "rest_statements_per_s", "{:.1f}"),
    ("reads/s at rest", "rest_reads_per_s", "{:.1f}"),
    ("backlog ratio", "backlog_ratio", "{:.2f}"),
    ("2+4 noop", "apart_noop_times", "{:.2f}x"),
    ("2+4 10 ms", "apart_held_times", "{:.2f}x"),
    ("recovery p99 s", "recovery_p99_s", "{:.2f}"),
    ("ended twice", "recovery_ended_twice", "{:.0f}"),
    ("held at kill", "recovery_held", "{:.0f}"),
    ("never ended", "recovery_not_ended", "{:.0f}"),
    ("back after s", "recovery_s", "{:.1f}"),
)
# Of Forebay's row: what, its key, whether it holds.
BARS = (
    ("idle p50 <= 5 ms", "idle_p50_ms", lambda found: found <= 5),
    ("idle p99 <= 20 ms", "idle_p99_ms", lambda found: found <= 20),
    ("rate with the backlog / without >= 0.80", "backlog_ratio", lambda found: found >= 0.8),
    ("2 API + 4 nodes / 1 + 1, jobs of 10 ms > 1", "apart_held_times", lambda found: found > 1),
    ("recovery p99 < lease + 1 s", "recovery_p99_s", lambda found: found < 3.0),
    ("jobs that ended twice = 0", "recovery_ended_twice", lambda found: found == 0),
)
TIMES = {"celery": 2.0, "procrastinate": 3.0, "dramatiq": 1.0, "taskiq": 1.0, "saq": 1.0, "streaq": 1.0}


def medians(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure, and each round's."""
    keys = dict.fromkeys(key for one in rounds for key in one)
    found: Figures = {}
    for key in keys:
        values = [one[key] for one in rounds if one.get(key) is not None]
        found[key] = round(statistics.median(values), 3) if values else None
    return found | {"rounds": list(rounds)}


def times_of(rows: Rows) -> dict[str, float]:
    """Return how many times the rate of each peer Forebay's is, by the median of the rounds' ratios."""
    ours = rows.get("forebay", {}).get("rounds", [])
    found = {}
    for name, row in rows.items():
        pairs = [
            (one["through_per_s"], other["through_per_s"])
            for one, other in zip(ours, row.get("rounds", []), strict=False)
            if name != "forebay" and "through_per_s" in one and "through_per_s" in other
        ]
        if pairs:
            found[name] = round(statistics.median(one / other for one, other in pairs), 2)
    return found


def table(name: str, synced: str, rows: Rows, deaths: dict[str, str]) -> str:
    """Return the rows of one server."""
    shown = [column for column in COLUMNS if any(row.get(column[1]) is not None for row in rows.values())]
    lines = [["", *(title for title, _, _ in shown), "a job whose worker dies"]]
    for row, figures in rows.items():
        cells = [form.format(figures[key]) if figures.get(key) is not None else "-" for _, key, form in shown]
        lines.append([row, *cells, deaths.get(row, "")])
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    text = [
        "  ".join(
            [
                line[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:-1], strict=True)),
                line[-1],
            ]
        ).rstrip()
        for line in lines
    ]
    return "\n".join([f"\n{name}, synced {synced}", *text])


def bars(rows: Rows) -> list[str]:
    """Return a line for each bar that this run can tell of."""
    ours = rows.get("forebay", {})
    lines = [
        f"{'holds ' if good(ours[key]) else 'MISSED'} {what}: {ours[key]:.2f}"
        for what, key, good in BARS
        if ours.get(key) is not None
    ]
    for peer, times in times_of(rows).items():
        good = times >= TIMES[peer]
        lines.append(f"{'holds ' if good else 'MISSED'} through/s >= {TIMES[peer]:.0f} x {peer}: {times:.2f}")
    return lines
