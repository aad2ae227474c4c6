"""The client: submit, wait, map; `Client` blocks, `AsyncClient` awaits, both decide alike."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.client.aio import AsyncClient, AsyncJob
    from forebay.client.events import JobEvent
    from forebay.client.faults import JobFailedError, RemoteError, StreamRestartedError
    from forebay.client.holding import HeldBackError
    from forebay.client.records import ETA, Announcement, BlobRef, Mapped, Verdict
    from forebay.client.sync import Client, Job

__all__ = [
    "ETA",
    "Announcement",
    "AsyncClient",
    "AsyncJob",
    "BlobRef",
    "Client",
    "HeldBackError",
    "Job",
    "JobEvent",
    "JobFailedError",
    "Mapped",
    "RemoteError",
    "StreamRestartedError",
    "Verdict",
]

_HOMES = {
    "AsyncClient": "aio",
    "AsyncJob": "aio",
    "Client": "sync",
    "HeldBackError": "holding",
    "Job": "sync",
    "JobEvent": "events",
    "JobFailedError": "faults",
    "StreamRestartedError": "faults",
    "RemoteError": "faults",
    "Announcement": "records",
    "BlobRef": "records",
    "ETA": "records",
    "Mapped": "records",
    "Verdict": "records",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"forebay.client.{_HOMES[name]}"), name)
