"""LogTail: the newest lines a child printed, bounded in lines and bytes, whatever it prints."""

from collections import deque
from collections.abc import Callable

LINES_MAX = 200
LINE_LENGTH_MAX = 2_000  # bytes; longer lines are cut


class LogTail:
    """Takes raw output in pieces; never fails, never grows."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._open = b""  # the unfinished line, cut
        self.bytes_seen = 0
        self._count = 0  # whole lines kept so far
        self._marked = 0  # of them, when evidence was asked last
        self._marked_open = 0  # bytes of the unfinished line then
        self.pull: Callable[[], None] = _nothing  # feeds what was printed and not read
        self.sink: Callable[[str], None] | None = None  # hears every whole line that is kept

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self.bytes_seen += len(data)
        first, *others = data.split(b"\n")
        self._open = (self._open + first[: LINE_LENGTH_MAX + 1])[: LINE_LENGTH_MAX + 1]
        if not others:
            return
        self._close()
        *whole, self._open = others
        for line in whole[-LINES_MAX:]:
            self._keep(_text(line))
        self._open = self._open[: LINE_LENGTH_MAX + 1]

    def _close(self) -> None:
        self._keep(_text(self._open))
        self._open = b""

    def _keep(self, line: str) -> None:
        self._lines.append(line)
        self._count += 1
        if self.sink is not None:
            self.sink(line)

    def lines(self) -> tuple[str, ...]:
        """Return the newest lines, the unfinished one last."""
        unfinished = (_text(self._open),) if self._open else ()
        return (*self._lines, *unfinished)[-LINES_MAX:]

    def evidence(self, *, failed: bool) -> str:
        """Return what was printed since the last call when something failed, else ""."""
        self.pull()  # what was printed before the news came lies in the pipe by now
        told = self.since_mark() if failed else ""
        self._marked, self._marked_open = self._count, len(self._open)
        return told

    def since_mark(self) -> str:
        """Return the newest lines that began since `evidence` was asked last, "" when there are none."""
        fresh = self._count - self._marked
        lines = list(self._lines)[-fresh:] if fresh else []
        if self._marked_open and fresh and len(lines) == fresh:
            del lines[0]  # it was begun before
        if self._open and not (self._marked_open and not fresh):
            lines.append(_text(self._open))
        return "\n".join(lines)


def _nothing() -> None:
    pass


def _text(line: bytes) -> str:
    cut = line[:LINE_LENGTH_MAX].decode("utf-8", "replace").rstrip("\r")
    return cut + "…" if len(line) > LINE_LENGTH_MAX else cut
