"""Board: where running pipelines write what they do, for a server beside them to show: a small file each."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from forebay.pipeline.report import Report
from forebay.streams.machine import started_at

FILES_MAX: Final = 64  # pipelines shown
FILE_BYTES_MAX: Final = 4 * 1024 * 1024


class Board:
    """The directory `streams` below a data directory. A file whose process has ended is not shown, and is
    removed by the next pipeline that ends."""

    def __init__(self, data: Path) -> None:
        self._directory = data / "streams"

    def post(self, report: Report) -> None:
        """Write what a pipeline of this process does. Raises OSError."""
        pid = os.getpid()
        self._directory.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.encode(
            {
                "pid": pid,
                "started": started_at(pid),
                "items": report.items(),
                "stages": report.stage_items(),
            }
        )
        path = self._path(report.pipeline)
        beside = path.with_suffix(".new")
        beside.write_bytes(text)
        beside.replace(path)

    def take_down(self, pipeline: str) -> None:
        """Remove what was posted, and what the dead left."""
        self._path(pipeline).unlink(missing_ok=True)
        for path in self._files():
            if self._read(path) is None:
                path.unlink(missing_ok=True)

    def streams(self) -> Sequence[Mapping[str, object]]:
        """Return the streams of all pipelines that run."""
        return [item for posted in self._posted() for item in posted["items"]]

    def stages(self) -> Sequence[Mapping[str, object]]:
        """Return their stages."""
        return [item for posted in self._posted() for item in posted["stages"]]

    def _path(self, pipeline: str) -> Path:
        safe = "".join(letter if letter.isalnum() else "-" for letter in pipeline)[:60]
        return self._directory / f"{os.getpid()}-{safe}.json"

    def _files(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return sorted(self._directory.glob("*.json"))[:FILES_MAX]
        return []

    def _posted(self) -> list[dict[str, Any]]:
        return [posted for path in self._files() if (posted := self._read(path)) is not None]

    def _read(self, path: Path) -> dict[str, Any] | None:
        """Return what a living process posted, None otherwise."""
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                return None
            posted = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            alive = started_at(int(posted["pid"])) == posted["started"]
        except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
            return None
        return posted if alive else None
