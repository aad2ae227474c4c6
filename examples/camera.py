"""Fifteen cameras and one face detector: what a crowd does to them, with a plain queue and with a pipeline.

    python examples/camera.py                  # 15 cameras for 20 s, with and without
    forebay stream examples/camera.py:pipeline --source clip.mp4

The detector is real: the cascade of frontal faces that comes inside OpenCV's package. So is its work: a film
of a portrait that wanders, alone at first and then in a crowd, drawn by ffmpeg.
"""

import argparse
import importlib.util
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy

import forebay
from forebay import sources

SIZE = (400, 300)
FACE = (64, 68)  # pixels of a face on the film
CALM = 1  # faces before the crowd comes
CROWD = tuple((8 + 79 * (n % 5), 12 + 97 * (n // 5)) for n in range(15))  # where each wanders
CALM_S, CROWD_S, FILM_FPS = 2, 4, 10
CASCADE = "haarcascade_frontalface_alt2.xml"
DEADLINE_S = 0.3  # an answer is worth something for so long


# -- the film ----------------------------------------------------------------------------------------


def portrait() -> Path:
    """Return a portrait of Grace Hopper (US Navy, public domain), which comes inside matplotlib's package."""
    found = importlib.util.find_spec("matplotlib")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("camera: pip install -r examples/requirements.txt (matplotlib has the portrait)")
    return Path(found.submodule_search_locations[0]) / "mpl-data" / "sample_data" / "grace_hopper.jpg"


def draw_film(path: Path) -> Path:
    """Have ffmpeg draw it: one face that wanders, after CALM_S seconds among fourteen others."""
    faces = "".join(f"[f{number}]" for number in range(len(CROWD)))
    steps = [f"[1:v]crop=290:310:120:70,scale={FACE[0]}:{FACE[1]},split={len(CROWD)}{faces}"]
    last = "0:v"
    for number, (left, top) in enumerate(CROWD):
        wander = f"x='{left}+6*sin(t+{number})':y='{top}+6*cos(t*1.3+{number})'"
        shown = "" if number < CALM else f":enable='gte(t,{CALM_S})'"
        steps.append(f"[{last}][f{number}]overlay={wander}{shown}[v{number}]")
        last = f"v{number}"
    seconds = CALM_S + CROWD_S
    command = [
        *("ffmpeg", "-nostdin", "-loglevel", "error", "-y"),
        *("-f", "lavfi", "-i", f"color=0x5a6a7a:size={SIZE[0]}x{SIZE[1]}:rate={FILM_FPS}:duration={seconds}"),
        *("-i", str(portrait()), "-filter_complex", ";".join(steps), "-map", f"[{last}]"),
        *("-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", str(path)),
    ]
    try:
        subprocess.run(command, check=True, timeout=120)
    except FileNotFoundError:
        raise SystemExit("camera: ffmpeg is missing: apt-get install ffmpeg (Debian, Ubuntu)") from None
    return path


def frames_of(path: Path) -> tuple[list[numpy.ndarray], list[numpy.ndarray]]:
    """Return the frames of the calm part and of the crowd, gray."""
    frames = [one.pixels for one in sources.ffmpeg(str(path), pixels="gray")]
    return frames[: CALM_S * FILM_FPS], frames[CALM_S * FILM_FPS :]


# -- the model ---------------------------------------------------------------------------------------


class DetectFaces:
    """Where faces are, as shares of width and height, so that a smaller frame gives the same answer."""

    def load(self, device: forebay.Device) -> None:
        cv2.setNumThreads(1)  # the pipeline has the replicas
        self.cascade = cv2.CascadeClassifier(cv2.data.haarcascades + CASCADE)

    def predict(self, frames: list[numpy.ndarray]) -> list[dict]:
        return [{"faces": self.faces(frame)} for frame in frames]

    def faces(self, frame: numpy.ndarray) -> list[list[float]]:
        if frame.ndim == 3:
            frame = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        height, width = frame.shape
        most = round(width * 0.25)
        found = self.cascade.detectMultiScale(frame, 1.15, 2, minSize=(20, 20), maxSize=(most, most))
        return [[x / width, y / height, w / width, h / height] for x, y, w, h in found]


def pipeline_of(replicas: int = 2, deadline_s: float = DEADLINE_S) -> forebay.Pipeline:
    """Return one stage whose frames get smaller as its queue fills, long before any is lost."""
    return forebay.Pipeline(
        forebay.Stage(
            DetectFaces,
            queue=forebay.Queue(16, on_full="drop_oldest"),
            degrade=forebay.Degrade([(0.06, forebay.Scale(0.5)), (0.25, forebay.Scale(0.45))]),
            replicas=replicas,
        ),
        deadline=deadline_s,
        name="faces",
    )


pipeline = pipeline_of()


# -- the cameras, with and without -------------------------------------------------------------------


class Load(NamedTuple):
    """What is sent, and to how many detectors."""

    cameras: int
    fps: float  # of each camera
    seconds: float
    replicas: int
    deadline_s: float = DEADLINE_S

    @property
    def frames(self) -> int:
        """Of each camera."""
        return max(1, round(self.seconds * self.fps))


class Outcome(NamedTuple):
    """What became of the frames of one run."""

    sent: int
    served: int
    late: int  # served, and too late to be of use
    p99_s: float
    found: int  # faces
    known: int  # faces on the frames that were served
    degraded: float = 0.0  # the share of those served that were made smaller

    @property
    def loss(self) -> float:
        """The share of frames without an answer in time."""
        return 1 - (self.served - self.late) / self.sent if self.sent else 0.0


def shots(film: list[numpy.ndarray], number: int, count: int) -> Iterator[numpy.ndarray]:
    """Return what one camera sees: the film over and over, each camera at another place in it."""
    return (film[(number * 7 + n) % len(film)] for n in range(count))


def rate_of(film: list[numpy.ndarray], replicas: int) -> float:
    """Return the frames/s that so many detectors finish at full size, measured side by side."""

    def work(box: list[int], ends_at: float) -> None:
        task = DetectFaces()
        task.load(forebay.Device())
        while time.monotonic() < ends_at:
            task.faces(film[len(box) % len(film)])
            box.append(1)

    boxes: list[list[int]] = [[] for _ in range(replicas)]
    ends_at = time.monotonic() + 2.0
    workers = [threading.Thread(target=work, args=(box, ends_at)) for box in boxes]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(map(len, boxes)) / 2.0


def without(film: list[numpy.ndarray], load: Load) -> Outcome:
    """The same through one `queue.Queue`, as it is done where nobody has thought of a crowd."""
    waiting: queue.Queue = queue.Queue(300)
    ages, found, sent = [], [], [0] * load.cameras

    def watch(number: int) -> None:
        for one in sources.iterable(shots(film, number, load.frames), fps=load.fps):
            sent[number] += 1
            try:
                waiting.put_nowait(one)
            except queue.Full:
                pass

    def detect() -> None:
        task = DetectFaces()
        task.load(forebay.Device())
        while (one := waiting.get()) is not None:
            found.append(len(task.faces(one.pixels)))
            ages.append(time.time() - one.captured_at)

    watchers = [threading.Thread(target=watch, args=(number,)) for number in range(load.cameras)]
    workers = [threading.Thread(target=detect) for _ in range(load.replicas)]
    for thread in (*workers, *watchers):
        thread.start()
    for thread in watchers:
        thread.join()
    for _ in workers:
        waiting.put(None)
    for thread in workers:
        thread.join()
    late = sum(age > load.deadline_s for age in ages)
    return Outcome(sum(sent), len(ages), late, p99(ages), sum(found), len(found) * len(CROWD))


def with_pipeline(film: list[numpy.ndarray], load: Load) -> Outcome:
    """Through the pipeline."""
    ages, found = [], []

    def hear(result) -> None:
        ages.append(result.served_at - result.captured_at)
        found.append(len(result.value["faces"]))

    eyes = [
        sources.iterable(shots(film, number, load.frames), stream=f"camera-{number:02}", fps=load.fps)
        for number in range(load.cameras)
    ]
    report = pipeline_of(load.replicas, load.deadline_s).run(*eyes, sink=hear)
    smaller = sum(one.degraded_ratio * one.served for one in report.streams) / max(1, report.served)
    late = sum(age > load.deadline_s for age in ages)
    known = len(found) * len(CROWD)
    return Outcome(report.sent, report.served, late, p99(ages), sum(found), known, smaller)


def p99(ages: list[float]) -> float:
    """Return the age that one in a hundred passes."""
    return sorted(ages)[int(len(ages) * 0.99)] if ages else float("nan")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--cameras", type=int, default=15)
    asked.add_argument("--seconds", type=float, default=20.0)
    asked.add_argument("--replicas", type=int, default=2)
    asked.add_argument("--load", type=float, default=1.8, help="frames offered for each the detectors finish")
    asked.add_argument("--deadline", type=float, default=DEADLINE_S, help="seconds")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calm, crowd = frames_of(draw_film(Path(folder) / "crowd.mp4"))
    capacity = rate_of(crowd, options.replicas)
    fps = options.load * capacity / options.cameras
    load = Load(options.cameras, fps, options.seconds, options.replicas, options.deadline)
    alone = rate_of(calm, load.replicas)
    print(f"{load.replicas} detectors finish {alone:.0f} frames/s of one face, {capacity:.0f} of a crowd")
    print(f"{load.cameras} cameras send {fps:.1f} frames/s each for {load.seconds:g} s, of the crowd")
    for name, run in (("queue.Queue", without), ("pipeline", with_pipeline)):
        end = run(crowd, load)
        print(
            f"{name:12} lost or late {end.loss:6.1%}   p99 {end.p99_s * 1000:6.0f} ms   "
            f"made smaller {end.degraded:4.0%}   faces found {end.found / max(1, end.known):4.0%}   "
            f"({end.served} of {end.sent} answered)"
        )


if __name__ == "__main__":
    main()
