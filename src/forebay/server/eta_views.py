"""Shapes of what is told of time: of one job, of a queue, and how true it was."""

import msgspec


class EtaView(msgspec.Struct):
    """When a job is expected to have ended, by what was measured."""

    p50_s: float
    p90_s: float
    p50_at: str
    p90_at: str
    message: str


class QueueEtaView(msgspec.Struct):
    """When a job submitted now is expected to have ended; no numbers while the queue is paused or its
    breaker is open."""

    p50_s: float | None
    p90_s: float | None
    p50_at: str | None
    p90_at: str | None
    message: str


class EtaAccuracyView(msgspec.Struct):
    """How true the told times were: the share of the last jobs that ended by the time told at submit. Of an
    honest p50 it is 0.5, of an honest p90 0.9."""

    by_p50: float
    by_p90: float
    scored: int
