"""Recovery: a worker node is killed with jobs in hand: when do they run again, does any end twice, what do peers do."""

import asyncio
import json
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.engines import load
from bench.engines.apart import fleet, seen
from bench.engines.rows import ONE_SLOT, driven
from bench.engines.servers import Server
from bench.harness import Served, connect, quantile
from bench.peering import Peer

LEASE_S, HEARTBEAT_S = 2.0, 0.5
JOBS, HOLD_S = 24, 0.2  # of one kill
WORKERS = 4  # of each node
ENDS_MAX_S = 30.0
LOOK_EVERY_S = 0.02
PEER_JOBS, PEER_HOLD_S, PEER_RUNS_S = 40, 0.2, 1.0


class Note(NamedTuple):
    """A line that a handler wrote."""

    what: str
    job: int
    at: float
    pid: int


def notes_of(path: Path) -> list[Note]:
    """Return the whole lines of a file of notes."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    split = [line.split() for line in lines if line.endswith("\n")]
    return [Note(what, int(job), float(at), int(pid)) for what, job, at, pid in split]


async def until(true: Any, most_s: float) -> bool:
    """Return whether it came true in time."""
    late = time.perf_counter() + most_s
    while not true():
        if time.perf_counter() > late:
            return False
        await asyncio.sleep(LOOK_EVERY_S)
    return True


async def recovery(server: Server, kills: int) -> dict[str, Any]:
    """Kill nodes; seconds from each kill until what the dead one ran began again, and jobs that ended twice."""
    env = {"FOREBAY_LEASE": f"{LEASE_S}s", "FOREBAY_HEARTBEAT": f"{HEARTBEAT_S}s"}
    waits: list[float] = []
    twice = 0
    with fleet({**server.fresh(), **env}, 1, 2, WORKERS) as ((door,), nodes):
        for _ in range(kills):
            begun, changed = await _kill(door, nodes[-1])
            waits += begun
            twice += changed
            nodes[-1].stop()
            nodes[-1] = Served("engines/app.py", verb="work", workers=WORKERS, **nodes[-1].env)
            await asyncio.to_thread(nodes[-1].wait_ready)
            await asyncio.to_thread(seen, door, 2)
        nodes[-1].stop()
    return {
        "recovery_lease_s": LEASE_S,
        "recovery_jobs": len(waits),
        "recovery_p50_s": round(quantile(waits, 0.5), 2),
        "recovery_p99_s": round(quantile(waits, 0.99), 2),
        "recovery_ended_twice": twice,
    }


async def _kill(door: Served, victim: Served) -> tuple[list[float], int]:
    """Kill a node while it runs jobs. Return the waits of those, and how many jobs changed after their end."""
    with tempfile.TemporaryDirectory(prefix="forebay-notes-") as directory:
        path = Path(directory) / "notes"
        ids = await _submitted(door, path)
        own = {child.pid for child in psutil.Process(victim.process.pid).children(recursive=True)}

        def running() -> set[int]:
            notes = [note for note in notes_of(path) if note.pid in own]
            return {n.job for n in notes if n.what == "began"} - {n.job for n in notes if n.what == "ended"}

        if not await until(lambda: len(running()) == WORKERS, ENDS_MAX_S):
            raise SystemExit("the node did not run what it should")
        killed_at = time.time()
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
        held = running()
        records = await _finals(door, ids)
        waits = []
        for job in held:
            again = [n.at for n in notes_of(path) if n.job == job and n.what == "began" and n.pid not in own]
            waits.append(min(again) - killed_at if again else ENDS_MAX_S)
        await asyncio.sleep(1.0)
        return waits, sum(
            before != after for before, after in zip(records, await _finals(door, ids), strict=True)
        )


async def _submitted(door: Served, path: Path) -> list[str]:
    (caller,) = await connect(door.port, 1)
    status, body = await caller.call(load.many(JOBS, notes=str(path), hold_s=HOLD_S))
    if status != 200:
        raise SystemExit(f"a submit was answered {status}: {body[:300]!r}")
    caller.transport.close()
    return [json.loads(line)["job_id"] for line in body.split(b"\n") if line.startswith(b"{")]


async def _finals(door: Served, ids: list[str]) -> list[Any]:
    """Return what is told of each job when all have ended."""
    await load.ended(door)
    return [await load.answer(door, f"/v1/jobs/{job_id}") for job_id in ids]


async def peer_recovery(server: Server, peer: Peer, place: int, wait_s: float) -> dict[str, Any]:
    """Kill all workers of a peer while two jobs run, start new ones: what became of those two and the rest."""
    one_slot = replace(peer, command=ONE_SLOT[peer.name])
    with tempfile.TemporaryDirectory(prefix="forebay-notes-") as directory:
        path = Path(directory) / "notes"
        env = {**server.place(place), "PEER_NOTES": str(path), "PEER_AT_ONCE": "1"}
        async with driven(one_slot, env) as driver:
            await driver.ask("ready")
            driver.start_workers()
            await driver.ask("idle", 1, 0.0)  # they work
            await driver.ask("hold", PEER_JOBS, PEER_HOLD_S)
            await until(lambda: notes_of(path), ENDS_MAX_S)
            await asyncio.sleep(PEER_RUNS_S)
            driver.kill_workers()
            killed_at, before = time.time(), notes_of(path)
            await driver.ask("ready")
            driver.start_workers()

            def ended() -> set[int]:
                return {note.job for note in notes_of(path) if note.what == "ended"}

            await until(lambda: len(ended()) == PEER_JOBS, wait_s)
            held = {n.job for n in before if n.what == "began"} - {n.job for n in before if n.what == "ended"}
            after = [note for note in notes_of(path) if note.at > killed_at and note.what == "ended"]
            back = [min(n.at for n in after if n.job == job) - killed_at for job in held & ended()]
            whole = held <= ended()
            return {
                "recovery_held": len(held),
                "recovery_not_ended": PEER_JOBS - len(ended()),
                "recovery_s": round(max(back), 1) if back and whole else None,
                "recovery_waited_s": round(time.time() - killed_at, 1),
            }
