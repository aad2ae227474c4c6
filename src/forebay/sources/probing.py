"""Probing: what ffprobe says of an input: its size as it is shown, its rate, its kind."""

import functools
import json
import re
import shutil
import subprocess
from typing import Any, Final, NamedTuple

from forebay.errors import UnsupportedError
from forebay.sources.asked import SIDE_MAX, shown
from forebay.sources.failures import SourceError, SourceStalledError

_SAID_MAX: Final = 400  # characters of what a program says that go into one line


class Probed(NamedTuple):
    """What is known of a video before its first frame."""

    width: int
    height: int
    fps: float | None  # None where it varies, or nobody knows
    codec: str


def program(name: str) -> str:
    """Return where a program of ffmpeg's is. Raises UnsupportedError with what to do where it is missing."""
    found = shutil.which(name)
    if found is None:
        raise UnsupportedError(
            f"{name} is not installed: apt-get install ffmpeg, or use forebay.sources.video"
            " (pip install 'forebay[video]')"
        )
    return found


@functools.cache
def passthrough(path: str) -> tuple[str, str]:
    """Return the option that gives each frame once as it comes; its name changed with ffmpeg 5.1."""
    done = subprocess.run(
        [path, "-version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=False
    )
    found = re.match(rb"ffmpeg version n?(\d+)\.(\d+)", done.stdout)
    is_old = found is not None and (int(found[1]), int(found[2])) < (5, 1)
    return ("-vsync" if is_old else "-fps_mode", "passthrough")


def said(text: bytes, address: str) -> str:
    """Return what a program said last, in one line, without passwords."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1].removeprefix(f"{address}: ") if lines else "it said nothing"
    return shown(last.replace(address, shown(address)))[-_SAID_MAX:]


def probe(address: str, *, arguments: tuple[str, ...] = (), wait_max_s: float) -> Probed:
    """Return what ffprobe finds. Raises SourceError in one line when it finds no video, or not in time."""
    command = [
        *(program("ffprobe"), "-v", "error", "-select_streams", "v:0"),
        *("-show_entries", "stream=width,height,avg_frame_rate,codec_name:stream_side_data=rotation"),
        *("-of", "json", *arguments, "-i", address),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=wait_max_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise SourceStalledError(
            f"{shown(address)}: no answer in {wait_max_s:g} s to what its size is"
        ) from None
    if done.returncode:
        raise SourceError(f"{shown(address)}: {said(done.stderr, address)}")
    return parse(done.stdout, address)


def parse(text: bytes, address: str) -> Probed:
    """Return what ffprobe's JSON says of the first video. Raises SourceError."""
    try:
        found: Any = json.loads(text)
        stream: dict[str, Any] = found["streams"][0]
        width, height = int(stream["width"]), int(stream["height"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise SourceError(f"{shown(address)}: there is no video in it") from None
    if not (1 <= width <= SIDE_MAX and 1 <= height <= SIDE_MAX):
        raise SourceError(f"{shown(address)}: {width}x{height} is no size of a frame (1 to {SIDE_MAX} each)")
    if _is_on_its_side(stream):
        width, height = height, width
    return Probed(width, height, _rate(stream.get("avg_frame_rate")), str(stream.get("codec_name", "")))


def _is_on_its_side(stream: dict[str, Any]) -> bool:
    try:
        beside: Any = stream["side_data_list"]
        turns = [int(entry.get("rotation", 0)) for entry in beside]
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return any(abs(turn) % 180 == 90 for turn in turns)


def _rate(text: object) -> float | None:
    over, _, under = str(text).partition("/")
    try:
        rate = float(over) / float(under or 1)
    except (ValueError, ZeroDivisionError):
        return None
    return rate if 0 < rate <= 100_000 else None
