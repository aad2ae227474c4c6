"""The public names, re-exported on first use, so that `import forebay` costs a child or a script nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay import postgres as postgres
    from forebay import sinks as sinks
    from forebay import sources as sources
    from forebay import streams as streams
    from forebay.client import ETA, AsyncClient, Client, JobFailedError
    from forebay.core.buffer import Backoff
    from forebay.declare import (
        App,
        Blob,
        Breaker,
        Context,
        Device,
        Failed,
        Permanent,
        Retry,
        Saturation,
        Variant,
    )
    from forebay.errors import BreakerOpenError, ForebayError
    from forebay.pipeline import Decimate, Degrade, Pipeline, Queue, Scale, Stage

__version__ = "0.1.0"

__all__ = [
    "ETA",
    "App",
    "AsyncClient",
    "Backoff",
    "Blob",
    "Breaker",
    "BreakerOpenError",
    "Client",
    "Context",
    "Decimate",
    "Degrade",
    "Device",
    "Failed",
    "ForebayError",
    "JobFailedError",
    "Permanent",
    "Pipeline",
    "Queue",
    "Retry",
    "Saturation",
    "Scale",
    "Stage",
    "Variant",
]

_HOMES = {
    "App": "declare",
    "Blob": "declare",
    "Breaker": "declare",
    "Context": "declare",
    "Device": "declare",
    "Failed": "declare",
    "Permanent": "declare",
    "Retry": "declare",
    "Saturation": "declare",
    "Decimate": "pipeline",
    "Degrade": "pipeline",
    "Pipeline": "pipeline",
    "Queue": "pipeline",
    "Scale": "pipeline",
    "Stage": "pipeline",
    "Variant": "declare",
    "AsyncClient": "client",
    "Backoff": "core.buffer",
    "Client": "client",
    "ETA": "client",
    "JobFailedError": "client",
    "BreakerOpenError": "errors",
    "ForebayError": "errors",
}


def __getattr__(name: str) -> Any:
    if name in {"postgres", "sinks", "sources", "streams"}:  # packages, with extras of their own
        return import_module(f"forebay.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'forebay' has no attribute {name!r}")
    value = getattr(import_module(f"forebay.{_HOMES[name]}"), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
