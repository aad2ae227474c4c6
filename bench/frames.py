"""Frames between processes: FrameQueue beside multiprocessing.Queue, in one run.

    python bench/frames.py [rate steady burst cost kills] [--burst-s 30] [--kills 500] [--json FILE]

rate    frames/s from one writer to one reader, the copy included, and processor microseconds of one frame on each
        side, the waits and wake-ups with them; the same by a writer that fills each frame where it lies; the same
        with multiprocessing.Queue; and the copy alone, which nothing that copies can pass on this machine
steady  milliseconds from capture to the reader at 2,000 frames/s of 640x480x3, and processor of the reader; the
        same with the copy and a bare pipe alone
burst   12,000 frames/s offered to two readers of 2,000/s each: milliseconds from capture to the end of the work,
        memory, and the account of every frame
cost    processor microseconds of a decision, and of put, get and release together, of one 64-byte frame
kills   writers and readers killed at random: is anything stuck, lost or miscounted

Frames are captured when they are offered; a reader's work is a wait, so that two cores are enough.
"""

import argparse
import contextlib
import itertools
import json
import math
import mmap
import multiprocessing
import os
import queue
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from harness import machine_lock, quantile, show

from forebay.core.buffer import Door
from forebay.errors import StreamEndedError
from forebay.streams import EmptyError, FrameQueue

ROOT = Path(__file__).parents[1]
SIZES = {
    "1 KB": (1024,),
    "100 KB": (102_400,),
    "640x480x3": (480, 640, 3),
    "1080p": (1080, 1920, 3),
    "4K": (2160, 3840, 3),
}
BARS = {"640x480x3": 20_000, "1080p": 2_000, "4K": 400}
AHEAD_S = 0.0002  # a paced writer sleeps when it is so far ahead
CONTEXT = multiprocessing.get_context("fork")
PARTS = ("rate", "steady", "burst", "cost", "kills")
Row = tuple[str, str, str]


def write_for(frames: Any, shape: tuple[int, ...], seconds: float, told: Any) -> None:
    """Put frames as fast as they are taken; tell the processor microseconds of one."""
    frame = numpy.ones(shape, "uint8")
    ends_at, count, began = time.perf_counter() + seconds, 0, time.process_time()
    while time.perf_counter() < ends_at:
        with contextlib.suppress(queue.Full):
            frames.put(frame, timeout=0.2)
            count += 1
    told.send((time.process_time() - began) / max(1, count) * 1e6)


def fill_for(frames: FrameQueue, _: tuple[int, ...], seconds: float, told: Any) -> None:
    """Write every pixel of a frame where it will be read, as a decoder can; tell as `write_for` does."""
    ends_at, count, began = time.perf_counter() + seconds, 0, time.process_time()
    while time.perf_counter() < ends_at:
        with contextlib.suppress(queue.Full), frames.blank(timeout=0.2) as place:
            place.array.fill(count & 255)
            count += 1
    told.send((time.process_time() - began) / max(1, count) * 1e6)


def rate_of(
    frames: Any, shape: tuple[int, ...], seconds: float, write: Callable[..., None] = write_for
) -> dict[str, float]:
    """Return frames/s through any queue with the verbs of multiprocessing.Queue, and what one costs each side."""
    told, tell = CONTEXT.Pipe(duplex=False)
    writer = CONTEXT.Process(target=write, args=(frames, shape, seconds, tell))
    writer.start()
    count, first_at, last_at, cpu_s = 0, 0.0, 0.0, 0.0
    with contextlib.suppress(queue.Empty):
        while True:
            frame = frames.get(timeout=1.0)
            last_at = time.perf_counter()
            if hasattr(frame, "release"):
                frame.release()
            if not count:
                first_at, cpu_s = last_at, time.process_time()
            count += 1
    cpu_s = time.process_time() - cpu_s
    writer_us = told.recv()
    writer.join()
    if count < 2:
        raise SystemExit(
            f"frames: {count} frames came in {seconds:g} s, too few for a rate: give a larger --secs"
        )
    return {
        "per_s": (count - 1) / (last_at - first_at),
        "writer_us": writer_us,
        "reader_us": cpu_s / count * 1e6,
    }


def slots_of(shape: tuple[int, ...], count: int) -> list[Any]:
    """Return shared memory for frames, touched once."""
    size = math.prod(shape)
    memory = mmap.mmap(-1, size * count)
    slots = [numpy.ndarray(shape, "uint8", memory, size * number) for number in range(count)]
    for slot in slots:
        slot[...] = 0
    return slots


def copies_of(shape: tuple[int, ...], seconds: float) -> dict[str, float]:
    """Return frames/s of the copy alone: one process, one frame, into two slots by turns."""
    frame, slots = numpy.ones(shape, "uint8"), slots_of(shape, 2)
    began, count = time.perf_counter(), 0
    while (took_s := time.perf_counter() - began) < seconds:
        numpy.copyto(slots[count % 2], frame)
        count += 1
    return {"per_s": count / took_s}


def rate(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """Both queues, size by size, in turns."""
    rows = []
    for name, shape in SIZES.items():
        depth = 64 if name != "4K" else 8
        kinds = ("FrameQueue", "filled in place", "multiprocessing.Queue", "copy")
        rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        for _ in range(args.rounds):
            ours = FrameQueue(depth, shape=shape)
            rounds["FrameQueue"].append(rate_of(ours, shape, args.secs))
            ours.close()
            ours = FrameQueue(depth, shape=shape)
            rounds["filled in place"].append(rate_of(ours, shape, args.secs, fill_for))
            ours.close()
            rounds["multiprocessing.Queue"].append(rate_of(CONTEXT.Queue(depth), shape, args.secs))
            rounds["copy"].append(copies_of(shape, args.secs / 3))
        middle = {
            kind: {key: statistics.median(one[key] for one in found) for key in found[0]}
            for kind, found in rounds.items()
        }
        figures[f"rate {name}"] = middle
        mine, other = middle["FrameQueue"], middle["multiprocessing.Queue"]
        times = f"{mine['per_s'] / other['per_s']:.1f} times"
        bar = f"bar {BARS[name]:,}" + (" and 30 times" if name == "640x480x3" else "") if name in BARS else ""
        in_place = middle["filled in place"]
        for title, one, remark in (
            (name, mine, bar),
            ("  filled in place", in_place, f"{in_place['per_s'] / other['per_s']:.1f} times"),
            ("  multiprocessing.Queue", other, times),
        ):
            costs = f"writer {one['writer_us']:,.0f} us, reader {one['reader_us']:,.0f} us"
            rows.append((f"{title}: frames/s", f"{one['per_s']:,.0f}", f"{costs}  {remark}"))
        most = middle["copy"]["per_s"]
        rows.append(
            ("  the copy alone", f"{most:,.0f}", f"the queue reaches {mine['per_s'] / most:.0%} of it")
        )
    return rows


def paced(offer: Callable[[], object], per_s: float, seconds: float) -> tuple[int, float]:
    """Offer at a rate, in time or as soon as possible; return how many it were, and how many a second."""
    offer()
    began, sent = time.perf_counter(), 1
    while (now := time.perf_counter()) < began + seconds:
        due = began + sent / per_s
        if due > now + AHEAD_S:
            time.sleep(due - now)
        offer()
        sent += 1
    return sent, sent / (time.perf_counter() - began)


def fill_paced(frames: FrameQueue, per_s: float, seconds: float) -> None:
    """Write frames at a rate where they will be read."""

    def fill() -> None:
        with contextlib.suppress(queue.Full), frames.blank(timeout=0.2) as place:
            place.array.fill(1)

    paced(fill, per_s, seconds)


def offer_paced(frames: FrameQueue, shape: tuple[int, ...], per_s: float, seconds: float, told: Any) -> None:
    """Offer frames at a rate, and tell how many it were."""
    frame = numpy.ones(shape, "uint8")
    frames.offer(frame)
    before_kb = rss_kb()
    sent, offered_per_s = paced(lambda: frames.offer(frame), per_s, seconds)
    told.send((1 + sent, offered_per_s, rss_kb() - before_kb))


def copy_paced(shape: tuple[int, ...], per_s: float, seconds: float, pipe_fd: int) -> None:
    """Copy frames at a rate and say through a bare pipe when each was captured; end with a zero."""
    frame, slots, turns = numpy.ones(shape, "uint8"), slots_of(shape, 2), itertools.cycle((0, 1))

    def offer() -> None:
        captured_ns = time.monotonic_ns()
        numpy.copyto(slots[next(turns)], frame)
        os.write(pipe_fd, captured_ns.to_bytes(8, "little"))

    paced(offer, per_s, seconds)
    os.write(pipe_fd, bytes(8))


def bare_waits(shape: tuple[int, ...], per_s: float, seconds: float) -> list[float]:
    """Return the milliseconds that the copy, a pipe and a wake-up take without a queue."""
    reader_fd, writer_fd = os.pipe()
    writer = CONTEXT.Process(target=copy_paced, args=(shape, per_s, seconds, writer_fd))
    writer.start()
    waits: list[float] = []
    while captured_ns := int.from_bytes(os.read(reader_fd, 8), "little"):
        waits.append((time.monotonic_ns() - captured_ns) / 1e6)
    writer.join()
    os.close(reader_fd)
    os.close(writer_fd)
    return waits


def waits_of(frames: FrameQueue, writer: Any) -> list[float]:
    """Return the age of each frame as it is read, in milliseconds, until `writer` has ended."""
    writer.start()
    waits: list[float] = []
    with contextlib.suppress(EmptyError):
        while True:
            with frames.get(timeout=2.0) as frame:
                waits.append(frame.age_s * 1000)
    writer.join()
    return waits


def steady(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """Hand-off at 2,000 frames/s."""
    shape = SIZES["640x480x3"]
    frames = FrameQueue(64, shape=shape, policy="drop_oldest")
    told, tell = CONTEXT.Pipe(duplex=False)
    cpu_s = time.process_time()
    waits = waits_of(
        frames, CONTEXT.Process(target=offer_paced, args=(frames, shape, 2_000.0, args.steady_s, tell))
    )
    share = (time.process_time() - cpu_s) / args.steady_s
    frames = FrameQueue(64, shape=shape)
    in_place = waits_of(frames, CONTEXT.Process(target=fill_paced, args=(frames, 2_000.0, args.steady_s)))
    bare = bare_waits(shape, 2_000.0, args.steady_s)
    queued, filled, alone = (
        {f"p{int(q * 100)}": quantile(one[200:], q) for q in (0.5, 0.95, 0.99)}  # after a cold start
        for one in (waits, in_place, bare)
    )
    figures["steady ms"] = queued | {
        "rate": told.recv()[1],
        "reader_share": share,
        "filled in place": filled,
        "bare": alone,
    }
    rows = []
    for what, found, remark in (
        ("2,000/s of 640x480x3: p95 ms", queued, f"bar 0.2; the reader takes {share:.0%} of a core; "),
        ("  filled in place", filled, ""),
        ("  the copy and a bare pipe", alone, ""),
    ):
        text = f"{remark}p50 {found['p50']:.3f}, p99 {found['p99']:.3f}"
        rows.append((what, f"{found['p95']:.3f}", text))
    return rows


def work(frames: FrameQueue, per_s: float, told: Any) -> None:
    """Serve frames at a rate until the end; tell the milliseconds from capture to the end of the work."""
    waits: list[float] = []
    free_at = time.perf_counter()
    while True:
        try:
            frame = frames.get(timeout=5.0)
        except (StreamEndedError, EmptyError):
            break
        with frame:
            free_at = max(free_at, time.perf_counter() - 0.001) + 1 / per_s
            left_s = free_at - time.perf_counter()
            if left_s > 0:
                time.sleep(left_s)
            waits.append(frame.age_s * 1000)
    told.send(waits)


def rss_kb() -> int:
    """Return the resident kilobytes of this process that are not shared."""
    fields = Path("/proc/self/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") // 1024


def one_burst(seconds: float, **settings: Any) -> dict[str, Any]:
    """Run one burst and return its figures."""
    shape = SIZES["640x480x3"]
    frames = FrameQueue(160, shape=shape, **settings)
    ends = [CONTEXT.Pipe(duplex=False) for _ in range(3)]
    workers = [CONTEXT.Process(target=work, args=(frames, 2_000.0, tell)) for _, tell in ends[:2]]
    writer = CONTEXT.Process(target=offer_paced, args=(frames, shape, 12_000.0, seconds, ends[2][1]))
    for process in [*workers, writer]:
        process.start()
    sent, offered_per_s, grown_kb = ends[2][0].recv()
    writer.join()
    frames.shutdown()
    waits: list[float] = []
    for told, _ in ends[:2]:
        waits += told.recv()
    for worker in workers:
        worker.join()
    counts = frames.counts()
    dropped = dict(counts.dropped)
    unaccounted = sent - counts.served - sum(dropped.values()) - counts.queued - counts.held
    size = frames.size_bytes
    frames.close()
    return {
        "p50": quantile(waits, 0.5),
        "p95": quantile(waits, 0.95),
        "sent": sent,
        "offered_per_s": offered_per_s,
        "served_per_s": counts.served / seconds,
        "dropped": dropped,
        "unaccounted": unaccounted,
        "shared_bytes": size,
        "writer_grown_kb": grown_kb,
    }


def burst(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """Each policy under 12,000 frames/s."""
    rows: list[Row] = []
    for name, bar, settings in (
        ("drop_oldest", "bar 25", {"policy": "drop_oldest"}),
        ("drop_newest", "bar 45", {"policy": "drop_newest"}),
        ("drop_newest, ttl 45 ms", "bar 46", {"policy": "drop_newest", "ttl": "45ms"}),
    ):
        found = one_burst(args.burst_s, **settings)
        figures[f"burst {name}"] = found
        rows.append((f"{name}, 160: p95 ms", f"{found['p95']:.1f}", f"{bar}; p50 {found['p50']:.1f}"))
        rates = f"{found['offered_per_s']:,.0f}/s offered, {found['served_per_s']:,.0f}/s served"
        rows.append(("  unaccounted", f"{found['unaccounted']}", f"bar 0; {rates}"))
        rows.append(("  memory grown: KB", f"{found['writer_grown_kb']}", "bar: flat"))
    return rows


def cpu_us(work: Callable[[], Any], times: int = 200, rounds: int = 400) -> float:
    """Return the least processor time of one call."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - began) / times)
    return min(found) * 1e6


def cost(_: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """Processor time of the parts, in one thread."""
    frames = FrameQueue(64, shape=(64,), policy="drop_oldest")
    frame = numpy.ones(64, "uint8")
    door = Door("drop_oldest", items_max=64, degrade_at=0.9)

    def ring() -> None:
        frames.put(frame)
        frames.get().release()

    ring()
    decide_us = cpu_us(lambda: door.decide(frames.qsize()))
    ring_us = cpu_us(ring)
    frames.close()
    figures["cost us"] = {"decide": decide_us, "put get release": ring_us}
    return [
        ("a decision: us", f"{decide_us:.2f}", "bar 5; with a look at the depth"),
        ("put, get, release: us", f"{ring_us:.2f}", "bar 10"),
    ]


def kills(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """The campaign of the tests, as long as asked."""
    wait_max_s = str(60 + 2 * args.kills)
    campaign = str(ROOT / "tests/streams/campaign.py")
    command = [sys.executable, campaign, "1", str(args.kills), "drop_oldest", wait_max_s]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures["kills"] = found = json.loads(done.stdout)
    return [
        (f"{args.kills} kills: stuck", str(found["stuck"]), "bar 0"),
        (
            "  unaccounted, torn, slots missing",
            f"{found['unaccounted']}, {found['torn']}, {found['slots_missing']}",
            "bar 0",
        ),
        ("  frames lost with their process", str(found["dropped"].get("lost", 0)), f"of {found['sent']:,}"),
    ]


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all without")
    parser.add_argument("--secs", type=float, default=1.0, help="of each rate")
    parser.add_argument("--rounds", type=int, default=3, help="of each rate; the median counts")
    parser.add_argument("--steady-s", type=float, default=5.0)
    parser.add_argument("--burst-s", type=float, default=30.0)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--json", default=None)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    figures: dict[str, Any] = {}
    with machine_lock():
        rows = [row for part in args.parts or PARTS for row in globals()[part](args, figures)]
    show("Frames between processes", rows, figures, args.json)


if __name__ == "__main__":
    main()
