"""The rows: Forebay and the peers of each engine, each with what its own pages call the best safe settings."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from bench.harness import BENCH
from bench.peering import PEERS, Driver, Peer

FOREBAY = "forebay"
AFTER_MINUTE = "runs again after a minute"

REDIS = (
    Peer(
        *("celery", "", "runs again; after an hour if the pool died too", "celery", "celery_peer"),
        command=("celery", "-A", "celery_peer", "worker", "-c", "2", "-l", "ERROR"),
        env={"C_FORCE_ROOT": "1"},
        jobs=2_500,
    ),
    Peer(
        *(
            "dramatiq",
            "",
            "runs again when another worker finds it silent for a minute",
            "dramatiq",
            "dramatiq_peer",
        ),
        command=("dramatiq", "dramatiq_peer", "-p", "2", "-t", "8"),
        jobs=5_000,
    ),
    Peer(
        *("taskiq", "", "runs again after ten minutes idle", "taskiq", "taskiq_peer"),
        command=("taskiq", "worker", "taskiq_peer:broker", "-w", "2", "--log-level", "ERROR"),
        jobs=5_000,
    ),
    Peer(
        *("saq", "", AFTER_MINUTE, "saq", "saq_peer"),
        command=("saq", "saq_peer.settings", "--workers", "2"),
        jobs=7_500,
    ),
    Peer(
        *("streaq", "", AFTER_MINUTE, "streaq", "streaq_peer"),
        command=("streaq", "run", "streaq_peer:worker", "-w", "2"),
        jobs=7_500,
    ),
)
POSTGRES = (
    Peer(
        *(
            "procrastinate",
            "",
            "stays until a task of one's own looks for it",
            "procrastinate",
            "procrastinate_peer",
        ),
        command=("procrastinate", "--app=procrastinate_peer.app", "worker", "-c", "10"),
        processes=2,
        jobs=1_000,
    ),
)
# One job at a time in each of two processes: what recovery is measured with.
ONE_SLOT = {
    "celery": REDIS[0].command,
    "dramatiq": (*REDIS[1].command[:-1], "1"),
    "taskiq": (*REDIS[2].command, "--max-async-tasks", "1"),
    "saq": REDIS[3].command,
    "streaq": REDIS[4].command,
    "procrastinate": (*POSTGRES[0].command[:-1], "1"),
}


def peers_of(server: str) -> tuple[Peer, ...]:
    """Return the peers that run on a server, by its name."""
    if server.startswith("redis"):
        return REDIS
    return POSTGRES if server == "postgres" else ()


@contextlib.asynccontextmanager
async def driven(peer: Peer, env: dict[str, str]) -> AsyncIterator[Driver]:
    """Yield a peer's driver, which is ended with all it started."""
    data = Path(tempfile.mkdtemp(prefix="forebay-peers-"))
    env = {**os.environ, **peer.env, **env, "PEER": peer.module, "PEER_DATA": str(data)}
    env |= {"PYTHONPATH": f"{PEERS}:{BENCH}", "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"}
    env.setdefault("PEER_NOTES", str(data / "notes"))
    try:
        async with Driver(peer, env) as driver:
            yield driver
    except BaseException:
        log = data / "log"
        sys.stderr.write(log.read_text(errors="replace")[-2000:] if log.exists() else "")
        raise
    finally:
        shutil.rmtree(data, ignore_errors=True)
