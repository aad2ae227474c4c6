"""Stages of models behind bounded queues: frames from sources to sinks, every one accounted for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.pipeline.pipeline import Pipeline
    from forebay.pipeline.report import Report, StageReport, StreamReport
    from forebay.pipeline.running import Running
    from forebay.pipeline.stage import FrameFacts, Stage
    from forebay.pipeline.terms import Decimate, Degrade, Queue, Scale

__all__ = [
    "Decimate",
    "Degrade",
    "FrameFacts",
    "Pipeline",
    "Queue",
    "Report",
    "Running",
    "Scale",
    "Stage",
    "StageReport",
    "StreamReport",
]

_HOMES = {
    "Decimate": "terms",
    "Degrade": "terms",
    "FrameFacts": "stage",
    "Pipeline": "pipeline",
    "Queue": "terms",
    "Report": "report",
    "Running": "running",
    "Scale": "terms",
    "Stage": "stage",
    "StageReport": "report",
    "StreamReport": "report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'forebay.pipeline' has no attribute {name!r}")
    value = getattr(import_module(f"forebay.pipeline.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
