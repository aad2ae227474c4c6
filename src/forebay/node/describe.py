"""Describe an application through a short-lived child: user code never runs in this process."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Final

import msgspec

from forebay.errors import AppError
from forebay.node.death import signal_name
from forebay.node.frames import AppDescription, DescribeFailed
from forebay.node.spawn import child_command, child_environment, spawn

DESCRIBE_TIMEOUT_S: Final = 120.0  # importing a framework from a cold disk takes its time

_decode = msgspec.json.Decoder(AppDescription | DescribeFailed).decode


async def describe(
    app: str, *, env: Mapping[str, str], timeout_s: float = DESCRIBE_TIMEOUT_S
) -> AppDescription:
    """Return what the application declares, without blocking the loop. `env` is what the child inherits.

    Raises AppError with one line when it cannot be imported, is no application, or takes too long.
    """
    return await asyncio.to_thread(describe_app, app, env=env, timeout_s=timeout_s)


def describe_app(
    app: str, *, env: Mapping[str, str], timeout_s: float = DESCRIBE_TIMEOUT_S
) -> AppDescription:
    """The same for callers without a loop; blocks. What user code prints goes to our stderr."""
    _check_name(app)
    process = spawn(
        child_command("describe", app, {"parent": os.getpid()}),
        env=child_environment(env, threads=1, slot=None, on_cpu=False),
        fds=(),
        stdout=subprocess.PIPE,
        stderr=None,
    )
    try:
        document, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise AppError(f"{app}: still importing after {timeout_s:g} s, the limit") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return _described(app, document, process.returncode)


def _check_name(app: str) -> None:
    if not app.partition(":")[0].strip():
        raise AppError("the application has no name: write FILE_OR_MODULE, or FILE_OR_MODULE:app")
    try:
        app.encode()
    except UnicodeEncodeError:
        raise AppError(f"{app!a}: the name of an application must be UTF-8") from None


def _described(app: str, document: bytes, returncode: int) -> AppDescription:
    try:
        answer = _decode(document)
    except msgspec.DecodeError:
        code = f"exit code {returncode}" if returncode >= 0 else signal_name(-returncode)
        raise AppError(f"{app}: the import ended the process ({code})") from None
    if isinstance(answer, DescribeFailed):
        place = f" ({answer.where})" if answer.where else ""
        raise AppError(" ".join(f"{answer.message}{place}".split()))
    return answer
