"""The command and the environment of a child, and the start of its process."""

import subprocess
import sys
from collections.abc import Mapping, Sequence

# Every maths library wants all CPUs it sees; n replicas of that are slower than one.
THREAD_CAPS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)


def child_environment(
    base: Mapping[str, str], *, threads: int, slot: int | None, on_cpu: bool
) -> dict[str, str]:
    """Return the environment of a child.

    Thread caps are set where the user set none. A replica on a GPU sees that one GPU alone (`slot`, an
    index into what this process may see); one on the CPU sees none.
    """
    env = dict(base)
    for name in THREAD_CAPS:
        env.setdefault(name, str(threads))
    if slot is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible_gpu(base, slot)
        # Numbers mean the same card for us and for the driver.
        env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    elif on_cpu:
        env["CUDA_VISIBLE_DEVICES"] = ""
    return env


def visible_gpu(base: Mapping[str, str], slot: int) -> str:
    """Return the name of the slot-th GPU of those that CUDA_VISIBLE_DEVICES leaves visible."""
    names = [name.strip() for name in base.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return names[slot] if slot < len(names) else str(slot)


def child_command(entry: str, app: str, options: Mapping[str, int]) -> list[str]:
    """Return the command of a child: the same interpreter, no working directory in its path, no buffering
    of what user code prints."""
    extra = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return [sys.executable, "-P", "-u", "-m", "forebay.child", entry, app, *extra]


def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    fds: Sequence[int],
    stdout: int | None,
    stderr: int | None,
    cwd: str | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a child in a session and process group of its own.

    Call it in a thread that lives as long as the child may: the kernel ends a child with the THREAD
    that started it. Takes a few milliseconds. Raises OSError.
    """
    return subprocess.Popen(
        list(command),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(fds),
        start_new_session=True,
        cwd=cwd,
    )
