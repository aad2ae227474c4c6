"""How fast large payloads go in and out, and that the server's memory does not grow with them.

    python bench/blobs.py [--size-mb 1000] [--rounds 3] [--json FILE]

A blob is put and got back through the real server over loopback by the blocking client, which holds no more
than a piece either. `put` ends when the bytes are whole and synced. Beside the rate stands what it costs the
server in processor time, and its largest resident size during the run.
"""

import argparse
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import psutil
from harness import Served, machine_lock

from forebay.client import Client, blobs

PIECE = os.urandom(1_000_000)
LOOK_S = 0.02


class Watch:
    """The largest resident size of a process while the block runs, and its processor time."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.before_mb = self._process.memory_info().rss / 1e6
        self.most_mb = self.before_mb
        self.cpu_s = 0.0
        self.took_s = 0.0

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.most_mb = max(self.most_mb, self._process.memory_info().rss / 1e6)

    def __enter__(self) -> Self:
        self._thread.start()
        self._cpu = sum(self._process.cpu_times()[:2])
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.took_s = time.perf_counter() - self._began
        self.cpu_s = sum(self._process.cpu_times()[:2]) - self._cpu
        self._ended.set()
        self._thread.join()


def measured(url: str, pid: int, size_mb: int) -> dict[str, float]:
    """Put and get one blob."""
    got = 0

    def pieces() -> Iterator[bytes]:
        return (PIECE for _ in range(size_mb))

    def count(part: bytes) -> None:
        nonlocal got
        got += len(part)

    with Client(url) as client:
        with Watch(pid) as put:
            ref = client.put_blob(pieces())
        with Watch(pid) as get:
            client.run(blobs.get(ref, count, client.terms))
        assert got == ref.size == size_mb * len(PIECE)
        client.erase_blob(ref)
    return {
        "put_mb_s": size_mb / put.took_s,
        "get_mb_s": size_mb / get.took_s,
        "put_cpu_ms_per_mb": 1000 * put.cpu_s / size_mb,
        "get_cpu_ms_per_mb": 1000 * get.cpu_s / size_mb,
        "rss_before_mb": put.before_mb,
        "rss_most_mb": max(put.most_mb, get.most_mb),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the rounds and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None)
    chosen = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []
    with machine_lock():
        server = Served().wait_ready()
        for _ in range(chosen.rounds):
            url = f"http://127.0.0.1:{server.port}"
            rows.append(measured(url, server.process.pid, chosen.size_mb))
            print("  ".join(f"{name} {value:,.2f}" for name, value in rows[-1].items()))
        server.stop()
    line = json.dumps({"bench": "blobs", "size_mb": chosen.size_mb, "rows": rows})
    print(line)
    if chosen.json is not None:
        chosen.json.write_text(line + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
