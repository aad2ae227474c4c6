"""What the example models share: a fair number of threads, base64 taken apart, one bad item failing alone."""

import base64
import binascii
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import forebay

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MAX_BYTES = 8 * 1024 * 1024  # of one decoded input


def thread_count(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Threads a model should use here: OMP_NUM_THREADS, else the CPUs and the quota this process has.

    onnxruntime is built without OpenMP, so it ignores that variable and starts a thread per core of
    the machine, also inside a container that may use two of them. It has to be told.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdecimal() and int(asked) > 0:
        return min(int(asked), os.cpu_count() or 1)  # rapidocr takes every core when asked for too many
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroup v2 here, or the quota says "max"
        return allowed


def decoded(text: str, what: str) -> bytes:
    """The bytes behind `text`; what cannot be decoded today cannot be tomorrow, so nothing is retried."""
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        raise forebay.Permanent(f"{what} is larger than {MAX_BYTES:,} bytes")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise forebay.Permanent(f"{what} is not base64: {error}") from None


def each(one: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer | forebay.Failed]:
    """`one` over a batch, where an item that fails takes nobody with it."""
    answers: list[Answer | forebay.Failed] = []
    for item in items:
        try:
            answers.append(one(item))
        except forebay.Failed as failure:  # Permanent is one of these
            answers.append(failure)
        except Exception as error:  # a model's own error is this item's alone; the others keep their answers
            answers.append(forebay.Failed(f"{type(error).__name__}: {error}"))
    return answers
