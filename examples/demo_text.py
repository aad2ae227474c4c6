"""The figures of a demo run as text for people."""

from collections.abc import Sequence

from demo_burst import FIRST
from demo_report import Check, Figures

ETA_ROWS_MAX = 12


def report(figures: Figures, checks: Sequence[Check]) -> str:
    """The whole of it for people."""
    parts = [_text_part(figures), _eta_part(figures), _trouble_part(figures), _checks_part(checks)]
    return "\n\n".join(parts)


def _text_part(figures: Figures) -> str:
    text = figures["text"]
    rows = [
        f"Text read against the known text ({figures['pages']} pages; clean renders, not scans)",
        f"  lines exactly right    {text['lines_exact']} of {text['lines']} ({text['line_share']:.2%})",
        f"  number and total right {text['fields_exact']} of {text['fields']} ({text['field_share']:.2%})",
    ]
    for page in text["by_page"]:
        good = page["known_total"] == page["read_total"] and page["known_number"] == page["read_number"]
        rows.append(
            f"  page {page['page']:3}: {page['lines_exact']:2}/{page['lines']:2} lines,"
            f" {'=' if good else '≠'} {page['read_number']} {page['read_total']}"
            + ("" if good else f" (known: {page['known_number']} {page['known_total']})")
        )
        if page["missed"]:
            rows.append(f"            not found: {page['missed'][0]!r}; read instead: {page['instead'][:1]}")
    return "\n".join(rows)


def _eta_part(figures: Figures) -> str:
    eta = figures["eta"]
    rows = ["ETA told against the truth, in seconds (* at first sight: submitted by the paced client)"]
    rows.append("  page    p50     p90    true")
    for row in eta["rows"][:ETA_ROWS_MAX]:
        star = " " if row["at_submit"] else "*"
        rows.append(
            f"  {row['page']:3}{star} {row['p50_s']:6.1f}  {row['p90_s']:6.1f}  {row['true_s']:6.1f}"
            f"  {'within p50' if row['true_s'] <= row['p50_s'] else _late(row)}"
        )
    if eta["count"] > ETA_ROWS_MAX:
        rows.append(f"  … and {eta['count'] - ETA_ROWS_MAX} more in the summary")
    if not eta["count"]:
        return "\n".join([*rows, "  none was told"])
    rows.append(
        f"  done by p50: {eta['within_p50']} of {eta['count']} ({eta['within_p50'] / eta['count']:.0%};"
        f" half would be right), by p90: {eta['within_p90']} of {eta['count']}"
        f" ({eta['within_p90'] / eta['count']:.0%}; 90% would be right);"
        f" median error {eta['median_error_s']:.1f} s"
    )
    rows.append(
        f"  They rest on {FIRST} pages read before; of the kill and the poison the server could not know."
    )
    return "\n".join(rows)


def _late(row: Figures) -> str:
    return "within p90" if row["true_s"] <= row["p90_s"] else "later than told"


def _trouble_part(figures: Figures) -> str:
    refusals, kill = figures["refusals"], figures["kill"]
    low, high = refusals["retry_after_s"] or (0.0, 0.0)
    rows = ["Overload, deaths and bad pages"]
    rows.append(
        f"  refusals         {refusals['refused']} of a burst of {refusals['burst']} in"
        f" {refusals['burst_s']:.2f} s, at a bound of {figures['queue_max']} jobs;"
        f" Retry-After {low:.1f} to {high:.1f} s"
    )
    rows.append(
        f"  paced client     held back {refusals['holds']} more times, then finished them all;"
        f" the server counts {refusals['by_server']} refused submissions"
    )
    if kill is not None:
        rows.append(
            f"  kill -9          of worker process {kill['pid']} with {kill['hit']} pages in its hands;"
            f" {kill['hit_and_ended']} of them ended, attempts used: {kill['attempts']}"
        )
    rows.append(f"  workers          {figures['restarts']['count']} restarts")
    rows += [f"    {row['restarts']} of {row['worker']}: {row['last_crash']}"
             for row in figures["restarts"]["by_worker"] if row["restarts"]]  # fmt: skip
    rows.append(f"  dead letters     {len(figures['dead_letters'])}")
    rows += [f"    {row['kind']}, attempt {row['attempt']} of {row['attempts_max']}: {row['message']}"
             for row in figures["dead_letters"]]  # fmt: skip
    mates = figures["poison_neighbours"]
    rows.append(
        f"    the poison shared a batch with {len(mates)}; attempts used: {[m['attempt'] for m in mates]}"
    )
    rows.append(
        f"  jobs lost        {figures['lost']} ({figures['submitted']} submitted, {figures['accepted']}"
        f" accepted in the end, {figures['final']} in a final state) in {figures['work_s']:.1f} s"
    )
    return "\n".join(rows)


def _checks_part(checks: Sequence[Check]) -> str:
    return "\n".join(
        f"  {'held ' if check.good else 'BROKEN'} {check.name}" + ("" if check.good else f": {check.why}")
        for check in checks
    )
