"""Cameras before a crowd: what a pipeline loses, beside multiprocessing.Queue with the same model in the same run.

    python bench/cameras.py [crowd spike outage kills policy flood] [--secs 10] [--kills 100] [--json FILE]

crowd   15 cameras of 30 frames/s before a model of 250 whole frames/s: share lost, p99 from capture
spike   the same cameras with ten times the rate for a while: memory, accounts
outage  a stage of 64 frames and 500 ms whose model fails for a while: breaker, fallback, the camera's waits
kills   processes of a stage killed at random: is anything stuck or miscounted, how long until it serves again
policy  processor microseconds of what decides on one frame: offer and take of a queue of 15 streams
flood   five cameras before the replica of a served task, without and with 10,000 jobs for it: p99, share lost

Frames are 320x240x3. The model waits 0.3 ms for a call and 3.7 ms for the pixels of a whole frame (so a frame of half
the height and width takes a quarter), so that two cores are enough.
"""

import argparse
import contextlib
import multiprocessing
import os
import queue
import random
import signal
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
from harness import Served, machine_lock, quantile, show

import forebay
from forebay.core.gate import Gate, GateTerms
from forebay.core.ladder import Step
from forebay.core.lanes import Ticket
from forebay.streams.ports import Captured, Pressure

SHAPE = (240, 320, 3)
WHOLE = 240 * 320
CALL_S, FRAME_S = 0.0003, 0.0037
CAMERAS, PER_S = 15, 30.0
PARTS = ("crowd", "spike", "outage", "kills", "policy", "flood")
FLOOD_JOBS, FLOOD_SETTLE_S = 10_000, 12.0  # what frames use is known after ten seconds
CONTEXT = multiprocessing.get_context("spawn")
Row = tuple[str, str, str]


def work(pixels: int) -> None:
    """Take as long as the model takes for so many pixels."""
    time.sleep(CALL_S + FRAME_S * pixels / WHOLE)


def detect(image: Any) -> int:
    """Stand in for a detector."""
    work(image.shape[0] * image.shape[1])
    return int(image[0, 0, 0])


class Detect:
    """The same as a class, for a process."""

    def predict(self, images: list[Any]) -> list[int]:
        return [detect(image) for image in images]


class Camera:
    """A live camera: frames at a rate, whether anybody takes them or not; late ones at once."""

    live = True
    item_bytes_max = 240 * 320 * 3

    def __init__(self, stream: str, seconds: float, per_s: float = PER_S, spike: float = 1.0) -> None:
        self.stream, self._seconds, self._per_s, self._spike = stream, seconds, per_s, spike
        self.waits: list[float] = []
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[Captured]:
        began = time.time() + random.random() / self._per_s
        due, number = began, 0
        while due < began + self._seconds and not self._closed.is_set():
            self._closed.wait(max(0.0, due - time.time()))
            yield Captured(numpy.full(SHAPE, number % 251, "uint8"), self.stream, time.time())
            number += 1
            middle = abs((due - began) / self._seconds - 0.5) < 0.25
            due += 1.0 / (self._per_s * (self._spike if middle else 1.0))

    def press(self, pressure: Pressure) -> None:
        if pressure.retry_after_s is not None:
            self.waits.append(pressure.retry_after_s)

    def counts(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        self._closed.set()


def cameras(seconds: float, **facts: Any) -> list[Camera]:
    return [Camera(f"cam-{number}", seconds, **facts) for number in range(CAMERAS)]


def serve_queue(frames: Any, told: Any) -> None:
    """The worker of the incident: takes what comes, in its order, whole."""
    waits: list[float] = []
    while (found := frames.get()) is not None:
        captured_at, image = found
        detect(image)
        waits.append(time.time() - captured_at)
    told.send(waits)


def without(seconds: float) -> dict[str, float]:
    """The same cameras before a multiprocessing.Queue(300) and put_nowait."""
    frames, (told, tell) = CONTEXT.Queue(300), CONTEXT.Pipe(duplex=False)
    worker = CONTEXT.Process(target=serve_queue, args=(frames, tell))
    worker.start()
    lock, sent, lost = threading.Lock(), [0], [0]

    def pump(camera: Camera) -> None:
        for one in camera:
            full = False
            try:
                frames.put_nowait((one.captured_at, one.pixels))
            except queue.Full:
                full = True
            with lock:
                sent[0] += 1
                lost[0] += full

    threads = [threading.Thread(target=pump, args=(camera,)) for camera in cameras(seconds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    frames.put(None)
    waits = told.recv()
    worker.join()
    return {"sent": sent[0], "loss": lost[0] / sent[0], "p99_ms": quantile(waits, 0.99) * 1000}


def pipeline(**settings: Any) -> forebay.Pipeline:
    ladder = forebay.Degrade([(0.25, forebay.Scale(0.5)), (0.5, forebay.Scale(0.25))])
    backoff = forebay.Backoff("50ms", cap="1s")
    return forebay.Pipeline(
        forebay.Stage(detect, queue=64, on_full=backoff, degrade=ladder, **settings), protected=["cam-0"]
    )


def accounted(report: Any) -> int:
    return sum(one.sent - one.served - sum(one.dropped.values()) - one.in_flight for one in report.streams)


def crowd(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """15 cameras before a crowd."""
    before = without(args.secs)
    report = pipeline().run(*cameras(args.secs))
    p99_ms = max(one.run_p99_s for one in report.streams) * 1000
    shares = [one.drop_ratio for one in report.streams]
    degraded = sum(sum(one.degraded.values()) for one in report.streams) / report.served
    figures["crowd"] = {
        "without": before,
        "with": {"sent": report.sent, "loss": report.drop_ratio, "p99_ms": p99_ms, "degraded": degraded},
        "unaccounted": accounted(report),
    }
    return [
        ("15 cameras, multiprocessing.Queue(300): lost", f"{before['loss']:.1%}", "bar 40 % or more"),
        ("  p99 from capture, ms", f"{before['p99_ms']:.0f}", ""),
        ("15 cameras, a pipeline: lost", f"{report.drop_ratio:.2%}", "bar 2 % or less"),
        ("  p99 from capture of the worst camera, ms", f"{p99_ms:.0f}", "bar 300"),
        (
            "  worst camera lost; degraded; unaccounted",
            f"{max(shares):.2%}",
            f"{degraded:.0%}; {accounted(report)}",
        ),
    ]


def rss_kb() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


def spike(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """Ten times the rate for the middle half."""
    made = forebay.Pipeline(
        forebay.Stage(
            detect,
            queue=forebay.Queue(64, bytes_max="16MB"),
            on_full="drop_oldest",
            degrade=forebay.Degrade([(0.25, forebay.Scale(0.5)), (0.5, forebay.Scale(0.25))]),
        ),
        bytes_max="16MB",
        deadline="300ms",
    )
    made.run(*cameras(1.0))  # what is taken once is taken
    before_kb, most_kb = rss_kb(), [0]
    running = made.start(*cameras(args.secs, spike=10.0))
    while not running.wait(0.05):
        most_kb[0] = max(most_kb[0], rss_kb())
    report = running.report()
    grown_mb = (most_kb[0] - before_kb) / 1024
    p99_ms = max(one.run_p99_s for one in report.streams) * 1000
    figures["spike"] = {
        "sent": report.sent, "served": report.served, "dropped": report.dropped, "grown_mb": grown_mb,
        "p99_ms": p99_ms, "unaccounted": accounted(report),
    }  # fmt: skip
    return [
        ("spike of ten times: memory grew by, MB", f"{grown_mb:.1f}", "bar 16 (the budget of the queue)"),
        ("  p99 from capture, ms", f"{p99_ms:.0f}", "bar 300 (the deadline, and a call)"),
        ("  sent, served", f"{report.sent:,}, {report.served:,}", f"unaccounted {accounted(report)}, bar 0"),
    ]


def outage(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """Down for the middle third."""
    began = time.time()

    def fragile(image: Any) -> int:
        if abs((time.time() - began) / args.secs - 0.5) < 1 / 6:
            time.sleep(0.05)
            raise OSError("down")
        return detect(image)

    queue_ = forebay.Queue(64, put_timeout="500ms", on_full=forebay.Backoff("50ms", cap="1s"))
    breaker = forebay.Breaker(failures=3, window="5s", open_for="1s")
    stage = forebay.Stage(fragile, queue=queue_, breaker=breaker, fallback=lambda image: -1)
    made = forebay.Pipeline(stage)
    camera = Camera("cam", args.secs, per_s=200.0)
    report = made.run(camera)
    (stream,), (stage_,) = report.streams, report.stages
    failed = stream.dropped.get("failed", 0)
    figures["outage"] = {
        "sent": stream.sent, "dropped": dict(stream.dropped), "fallback": stream.fallback,
        "trips": stage_.breaker_trips, "p99_ms": stream.run_p99_s * 1000, "unaccounted": accounted(report),
    }  # fmt: skip
    return [
        (
            "outage: frames failed before it opened, and probes",
            str(failed),
            "3 failures in 5 s, then one a second",
        ),
        (
            "  answered by the fallback",
            str(stream.fallback),
            f"of {stream.sent}; trips {stage_.breaker_trips}",
        ),
        (
            "  p99 from capture, ms",
            f"{stream.run_p99_s * 1000:.0f}",
            f"unaccounted {accounted(report)}, bar 0",
        ),
    ]


def kills(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """Kill processes of a stage at random."""
    stage = forebay.Stage(Detect, queue=64, on_full="drop_oldest", processes=True, replicas=2, batch_max=4)
    running = forebay.Pipeline(stage).start(*cameras(3_600.0))
    done, back_s = 0, []
    while done < args.kills:
        time.sleep(random.random() * 0.1)
        worker = random.choice(running.crews[0].workers)
        pid = worker.pid
        if pid is None:
            continue
        with contextlib.suppress(ProcessLookupError):  # it has just been killed, and reaped
            os.kill(pid, signal.SIGKILL)
        done += 1
        served, began = running.report().served, time.perf_counter()
        while running.report().served == served and time.perf_counter() - began < 60:
            time.sleep(0.001)
        back_s.append(time.perf_counter() - began)
    ended = running.stop(10.0)
    report = running.report()
    lost = sum(one.dropped.get("lost", 0) for one in report.streams)
    restarts = sum(report.stages[0].restarts.values())
    figures["kills"] = {
        "kills": done, "restarts": restarts, "lost": lost, "sent": report.sent, "ended": ended,
        "unaccounted": accounted(report), "back_s_p99": quantile(back_s, 0.99), "back_s_max": max(back_s),
    }  # fmt: skip
    return [
        (f"{done} kills of two processes: unaccounted", str(accounted(report)), f"bar 0; ended {ended}"),
        ("  next frame served after, s: p99", f"{quantile(back_s, 0.99):.2f}", f"longest {max(back_s):.2f}"),
        ("  frames lost with their process", str(lost), f"of {report.sent:,}; {restarts} restarts"),
    ]


def policy(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """What a decision costs."""
    rows: list[Row] = []
    for name, count, ladder in (
        ("1 stream", 1, ()),
        ("15 streams, two steps", 15, (Step(0.5, scale=0.5), Step(0.9, scale=0.25))),
    ):
        gate = Gate(GateTerms(items_max=64, policy="drop_oldest", ladder=ladder))
        tickets = [Ticket(f"s{n % count}", n, 0.0, size_b=1000) for n in range(100_000)]
        began = time.process_time()
        for number, ticket in enumerate(tickets):
            gate.offer(ticket, now=1.0)
            if number % 3 == 0:  # so that the queue is full nearly always
                gate.take(1, now=1.0)
        each_us = (time.process_time() - began) / len(tickets) * 1e6
        figures[f"policy us, {name}"] = each_us
        rows.append((f"offer, a third of a take; {name}: us", f"{each_us:.2f}", "bar 5"))
    return rows


def flood(args: argparse.Namespace, figures: dict[str, Any]) -> list[Row]:
    """Frames of a served pipeline before and in a flood of jobs for the same replica."""
    with tempfile.NamedTemporaryFile() as told:
        server = Served("flood_models.py", workers=1, FLOOD_TOLD=told.name)
        try:
            server.wait_ready()
            time.sleep(FLOOD_SETTLE_S)
            calm = watch_frames(server, args.secs)
            lines = b"".join(b'{"task": "Detect", "payload": %d}\n' % n for n in range(FLOOD_JOBS))
            kind = {"Content-Type": "application/x-ndjson"}
            asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/jobs", lines, kind)
            with urllib.request.urlopen(asked, timeout=60) as answer:
                answer.read()
            flooded = watch_frames(server, args.secs)
            waiting = server.get("/v1/queues/Detect")["depth"]
        finally:
            server.stop()
        frames = [tuple(map(float, line.split())) for line in Path(told.name).read_text().splitlines()]
    rows: list[Row] = []
    seen: dict[str, dict[str, float]] = {}
    for name, (began, ended, sent, lost) in (("calm", calm), ("flood", flooded)):
        waits = [took_s for captured_at, took_s in frames if began <= captured_at < ended]
        seen[name] = {"sent": sent, "lost": lost / sent, "p99_ms": quantile(waits, 0.99) * 1000}
        rows.append(
            (
                f"five cameras, {name}: p99, ms",
                f"{seen[name]['p99_ms']:.1f}",
                f"lost {seen[name]['lost']:.2%}",
            )
        )
    ratio = seen["flood"]["p99_ms"] / seen["calm"]["p99_ms"]
    figures["flood"] = {**seen, "ratio": ratio, "jobs_done": FLOOD_JOBS - waiting}
    rows.append(("  p99 in the flood beside calm", f"{ratio:.2f}", "bar 1.2"))
    rows.append(("  jobs done meanwhile", f"{FLOOD_JOBS - waiting:,}", f"of {FLOOD_JOBS:,}"))
    return rows


def watch_frames(server: Served, seconds: float) -> tuple[float, float, int, int]:
    """Return when a span began and ended, and how many frames were sent and lost in it."""

    def counts() -> tuple[int, int]:
        streams = server.get("/v1/streams")["items"]
        return sum(s["sent"] for s in streams), sum(sum(s["dropped"].values()) for s in streams)

    began, before = time.time(), counts()
    time.sleep(seconds)
    after = counts()
    return began, time.time(), after[0] - before[0], after[1] - before[1]


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all without")
    parser.add_argument("--secs", type=float, default=10.0, help="of each part but kills")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--json", default=None)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    figures: dict[str, Any] = {}
    with machine_lock():
        rows = [row for part in args.parts or PARTS for row in globals()[part](args, figures)]
    show("Cameras before a crowd", rows, figures, args.json)


if __name__ == "__main__":
    main()
