"""The process of a replica: loads its stage, calls it on what comes, and ends with the one who started it."""

import os
import signal
import socket
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, NamedTuple, cast

from forebay.child.guard import ignore_signals
from forebay.declare import Device
from forebay.declare.options import Exceptions
from forebay.errors import InvalidError
from forebay.pipeline.calls import Calls, Failure, Job, failure_of
from forebay.pipeline.stage import Callee, FrameFacts
from forebay.pipeline.wire import GoneError, Packed, Wire

EXIT_GONE: Final = 113
_LOADS: Final = cast("Any", ForkingPickler).loads  # of what `pickled` made, in the process that started us


class Order(NamedTuple):
    """What a replica is told at its start. `callee` is pickled, so that it is imported after the device is
    chosen."""

    callee: bytes
    device: Device
    parent: int


class Errand(NamedTuple):
    """What is imported at the start: how to call, and what says nothing about the stage's health."""

    callee: Callee
    ignore: Exceptions


def pickled(errand: Errand) -> bytes:
    """Return it for an order. Raises InvalidError for what another process cannot import."""
    try:
        return bytes(ForkingPickler.dumps(errand))
    except Exception as error:
        name = getattr(errand.callee.target, "__qualname__", repr(errand.callee.target))
        raise InvalidError(
            f"{name} cannot run in a process of its own: it must be a function or a class at the top of a"
            f" module ({error})"
        ) from None


def serve(sock: socket.socket, order: Order) -> None:
    """Run until the other end closes."""
    _tie(order.parent)
    if order.device.slot is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(order.device.slot)
    wire = Wire(sock)
    try:
        errand: Errand = _LOADS(order.callee)
        calls = Calls(errand.callee, errand.ignore)
        calls.load(order.device)
    except BaseException as error:
        failure = failure_of(error)
        wire.send({"failed": [failure.kind, failure.text]}, [])
        return
    try:
        wire.send({"ready": os.getpid()}, [])
        while True:
            head, values = wire.receive()
            _answer(wire, calls, head, values)
            del values
    except GoneError:
        return


def _answer(wire: Wire, calls: Calls, head: dict[str, Any], values: list[Any]) -> None:
    jobs = [
        Job(value, FrameFacts(*facts), scale)
        for value, facts, scale in zip(values, head["facts"], head["scales"], strict=True)
    ]
    outcomes: list[Any] = []
    parts: list[Packed] = []
    for one in calls.run(jobs):
        if not isinstance(one, Failure):
            try:
                parts.append(wire.pack(one))
                outcomes.append(None)
                continue
            except InvalidError as error:
                one = failure_of(error)
        parts.append(wire.pack(None))
        outcomes.append(list(one))
    try:
        wire.send({"outcomes": outcomes}, parts)
    except GoneError:
        raise
    except Exception as error:  # no memory for the outputs, or too much of them
        failure = list(failure_of(error))
        wire.send({"outcomes": [failure] * len(jobs)}, [wire.pack(None)] * len(jobs))


def _tie(parent: int) -> None:
    """End with the parent, and leave the keyboard's and the terminal's signals to it."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(EXIT_GONE)
    ignore_signals()
