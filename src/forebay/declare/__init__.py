"""What users write: App, task, Breaker, Context, Failed, Retry, Variant and so on. Standard library only."""

from forebay.declare.app import App
from forebay.declare.blob import Blob
from forebay.declare.breaker import Breaker
from forebay.declare.context import Context
from forebay.declare.device import Device
from forebay.declare.failures import Failed, Permanent, Retry
from forebay.declare.saturation import Saturation
from forebay.declare.task import Task
from forebay.declare.variants import Variant

__all__ = [
    "App",
    "Blob",
    "Breaker",
    "Context",
    "Device",
    "Failed",
    "Permanent",
    "Retry",
    "Saturation",
    "Task",
    "Variant",
]
