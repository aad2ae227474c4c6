"""report: histories as a small table for people."""

from collections.abc import Iterable, Mapping, Sequence

from forebay.core.lifecycle import FINAL
from forebay.sim.world import Played


def summary(histories: Iterable[Played]) -> dict[str, float]:
    """Return totals: histories, events, virtual hours, checks, jobs, and jobs by final state."""
    names = ("histories", "events", "virtual_hours", "checks", "jobs", *sorted(s.value for s in FINAL))
    totals: dict[str, float] = dict.fromkeys(names, 0.0)
    for played in histories:
        totals["histories"] += 1
        totals["events"] += played.events
        totals["virtual_hours"] += played.took_s / 3600
        totals["checks"] += played.checks
        for state, count in played.states.items():
            totals["jobs"] += count
            totals[state.value] = totals.get(state.value, 0.0) + count
    return totals


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows with the same keys as an aligned table, "" for no rows."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [names, *([_shown(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells
    )


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 or value.is_integer() else f"{value:.2f}"
    return str(value)
