"""Camera: a live source that connects again when it is lost, and gives the newest frame it has."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from forebay.core.buffer import Backoff
from forebay.core.link import GiveUp, Link, LinkState, Loss
from forebay.errors import ConfigError, ForebayError, InvalidError, UnsupportedError
from forebay.sources.asked import stream_name, wait_s
from forebay.sources.failures import SourceError, SourceStalledError
from forebay.sources.feed import Feed
from forebay.sources.newest import Newest
from forebay.streams.ports import Captured

STEADY_S: Final = 5.0
GIVE_UP: Final = "1h"
_HOPELESS: Final = (ConfigError, UnsupportedError, InvalidError)  # no try more would change it


class Camera(Feed):
    """What `rtsp` and `reconnecting` return.

    A thread of its own reads, from the first `next` on, so that what is not read does not pile up in the
    network: the newest frame is kept, those it replaces are counted as `skipped`. When the connection is lost
    it waits, longer each time, and connects again, until nothing has come for `give_up_s`.
    """

    live = True

    def __init__(
        self,
        connect: Callable[[], Any],
        *,
        stream: str,
        backoff: Backoff,
        give_up_s: float | None,
        steady_s: float = STEADY_S,
        ends: bool = False,
    ) -> None:
        super().__init__("skipped", "decimated", "held_off")
        self.stream = stream_name(stream)
        self._connect = connect
        self._ends = ends
        self._link = Link(backoff, steady_s, give_up_s)
        self._newest = Newest()
        self._frames: Any = None
        self._thread: threading.Thread | None = None
        self.says = ""  # why it was lost the last time

    @property
    def state(self) -> str:
        """`connecting`, `streaming`, `waiting` for the next try, `ended` or `failed`."""
        return self._link.state.value

    @property
    def waited_s(self) -> float:
        """Seconds it has waited between tries."""
        return self._link.waited_s

    def counts(self) -> Mapping[str, int]:
        """Return `frames`, those not given, by why, the `reconnects`, and how connections were lost."""
        link = self._link
        losses = {f"lost_{loss.value}": count for loss, count in link.losses.items()}
        return {**super().counts(), "reconnects": link.reconnects, **losses}

    def __iter__(self) -> Iterator[Captured]:
        """Return the newest frame each time. Raises SourceError when it was given up."""
        if self._thread is not None:
            raise InvalidError("a camera is iterated once")
        self._thread = threading.Thread(target=self._run, name=f"camera {self.stream}", daemon=True)
        self._thread.start()
        try:
            yield from self._newest
        finally:
            self.close()

    def close(self) -> None:
        """End at once; the thread ends when what it waits for lets it."""
        super().close()
        self._newest.end()
        frames = self._frames
        if frames is not None and hasattr(frames, "close"):
            # A generator that runs in the other thread cannot be closed from here: it ends at its next frame.
            with contextlib.suppress(ValueError):
                frames.close()

    def _run(self) -> None:
        link, error = self._link, None
        try:
            while not self.closed.is_set():
                link.connect(self.clock.now())
                loss, error = self._stream()
                if loss is None or isinstance(error, _HOPELESS) or self.closed.is_set():
                    break
                verdict = link.lost(self.clock.now(), loss, self.clock.random())
                self.says = "it ended" if error is None else str(error)
                if isinstance(verdict, GiveUp):
                    error = SourceError(
                        f"{self.stream}: given up after {verdict.silent_s:.0f} s without a frame: {self.says}"
                    )
                    break
                error = None
                self.closed.wait(verdict.wait_s)
        except BaseException as raised:
            error = raised
        if error is not None:
            link.state = LinkState.FAILED
        link.end()
        self._newest.end(None if self.closed.is_set() else error)

    def _stream(self) -> tuple[Loss | None, BaseException | None]:
        """Stream over one connection. Return how it was lost, None when that was the end, and by what."""
        frames = None
        try:
            frames = self._frames = self._connect()
            for item in frames:
                if self.closed.is_set():
                    return None, None
                self._take(item)
        except SourceStalledError as error:
            return Loss.STALLED, error
        except (ForebayError, OSError, EOFError, TimeoutError) as error:
            return Loss.BROKEN, error
        finally:
            self._frames = None
            if frames is not None and hasattr(frames, "close"):
                frames.close()
        return (None if self._ends else Loss.ENDED), None

    def _take(self, item: Any) -> None:
        now = self.clock.now()
        self._link.frame(now)
        unwanted = self.unwanted(self.stream)
        if unwanted is not None:
            self.count(unwanted)
            return
        captured = item if isinstance(item, Captured) else Captured(item, self.stream, now)
        self.count("skipped", self._newest.put(captured))
        self.count("frames")


def reconnecting(
    connect: Callable[[], Any],
    *,
    stream: str,
    backoff: Backoff | None = None,
    give_up: str | float | None = GIVE_UP,
    ends: bool = False,
) -> Camera:
    """Return a live source of what `connect()` returns, an iterable of frames, called again when it was lost.

    Lost is: it raises a ForebayError, an OSError, EOFError or TimeoutError, or ends, where `ends` is not
    true. Anything else is a mistake in it, and ends the stream. `backoff`: half of each wait is drawn, so
    that many cameras do not come back at one moment. `give_up`: after so long without a frame; None is never.
    """
    return Camera(
        connect,
        stream=stream,
        backoff=backoff or Backoff("500ms", cap="30s"),
        give_up_s=wait_s("give_up", give_up),
        ends=ends,
    )
