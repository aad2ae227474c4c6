"""Live: a pipeline's report in one line while it runs, and in a few when it has ended."""

from collections.abc import Mapping
from typing import Final

from forebay.core.accounts import ALERT_SHARE
from forebay.pipeline.report import Report, StreamReport

THROTTLED_ALERT: Final = 0.2  # of the periods


class Rates:
    """Frames a second between two looks."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._sent = self._served = 0

    def line(self, report: Report) -> str:
        """Return what it does now: rates, drops, the worst p99, what waits where, what degrades."""
        spent_s = max(1e-3, report.seconds - self._seconds)
        per_s = (report.sent - self._sent) / spent_s, (report.served - self._served) / spent_s
        self._seconds, self._sent, self._served = report.seconds, report.sent, report.served
        depths = " ".join(f"{one.stage} {one.depth}/{one.capacity}" for one in report.stages)
        levels = [f"{one.stage} step {one.level}" for one in report.stages if one.level]
        levels += [
            f"{one.stage} breaker {one.breaker}"
            for one in report.stages
            if one.breaker not in (None, "closed")
        ]
        parts = [
            f"{report.state} {report.seconds:.0f} s",
            f"in {per_s[0]:.0f}/s out {per_s[1]:.0f}/s",
            f"dropped {report.dropped} ({report.drop_ratio:.2%}){' ALERT' if _alert(report) else ''}",
            f"p99 {_ms(worst_p99_s(report))}",
            f"waiting {depths}",
            *levels,
            *_throttled(report),
        ]
        return " | ".join(parts)


def worst_p99_s(report: Report) -> float | None:
    """Return the highest p99 from capture of any stream, of what was served lately; in seconds."""
    return max((one.p99_s for one in report.streams if one.p99_s is not None), default=None)


def lines_of(report: Report) -> list[str]:
    """Return what was done, a line for each stream and for each stage."""
    totals = f"{report.sent} sent, {report.served} served, {report.dropped} dropped ({report.drop_ratio:.2%})"
    rows = [f"{report.pipeline}: {totals} in {report.seconds:.1f} s"]
    rows += [_stream_line(one) for one in report.streams]
    for one in report.stages:
        dropped = _counts(one.dropped)
        restarts = f", restarts {_counts(one.restarts)}" if one.restarts else ""
        rows.append(
            f"  stage {one.stage}: {one.handed_on} handed on, call p50 {_ms(one.service_p50_s)} p99"
            f" {_ms(one.service_p99_s)}, idle {one.consumer_idle_ratio:.0%}, those before it waited"
            f" {one.producer_wait_ratio:.0%}{f', dropped {dropped}' if dropped else ''}{restarts}"
            f"{f', last error {one.last_error}' if one.last_error else ''}"
        )
    if report.sink_errors:
        rows.append(f"  sinks failed {report.sink_errors} times")
    rows += [f"  {one}" for one in _throttled(report)]
    return rows


def _throttled(report: Report) -> list[str]:
    """Return what a CPU quota took, where it took something."""
    stat = report.throttled
    if stat is None or report.cpus is None or not stat.throttled:
        return []
    cut = f"nr_throttled {stat.throttled} of {stat.periods} periods, {stat.throttled_s:.1f} s in all"
    more = "; give it more CPU" if stat.ratio > THROTTLED_ALERT else ""
    return [f"CPU throttled {stat.ratio:.0%} by a quota of {report.cpus:g} CPUs ({cut}){more}"]


def _stream_line(one: StreamReport) -> str:
    alert = f", ALERT: {ALERT_SHARE:.1%} or more dropped" if one.alert else ""
    dropped = f" ({_counts(one.dropped)})" if one.dropped else ""
    degraded = f", degraded {one.degraded_ratio:.1%}" if one.degraded else ""
    gone = f"{sum(one.dropped.values())} dropped{dropped}"
    return (
        f"  stream {one.stream}: {one.sent} sent, {one.served} served, {gone}{degraded},"
        f" p50 {_ms(one.run_p50_s)} p95 {_ms(one.run_p95_s)} p99 {_ms(one.run_p99_s)}{alert}"
    )


def _alert(report: Report) -> bool:
    return any(one.alert for one in report.streams)


def _counts(counts: Mapping[str, int]) -> str:
    return " ".join(f"{key} {count}" for key, count in counts.items())


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"
