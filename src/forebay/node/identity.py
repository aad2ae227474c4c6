"""worker_name, package_version: who this process is."""

import os
import secrets
import socket
from importlib.metadata import PackageNotFoundError, version


def worker_name() -> str:
    """Return this start's identity: host, process and a random part, so that a restart is somebody new."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def package_version() -> str:
    """Return the installed version of Forebay."""
    try:
        return version("forebay")
    except PackageNotFoundError:
        return "0"
