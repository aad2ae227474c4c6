"""SyncThread: the one thread that waits for the disk, so that the event loop does not."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

Step = Callable[[], None]
Done = Callable[[BaseException | None], None]


class SyncThread:
    """Runs one blocking step after another and reports to the loop.

    Steps are few and long (a commit, a sync, a checkpoint): rows are never written here, since every step of
    SQLite lets go of the interpreter lock and a busy loop would make each one wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps: SimpleQueue[tuple[Step, Done] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="forebay-sync", daemon=True)
        self._thread.start()

    def run(self, step: Step, done: Done) -> None:
        """Run `step` in the thread, then `done(error or None)` in the loop."""
        self._steps.put((step, done))

    def stop(self) -> None:
        """End the thread after the steps it was given. Twice is harmless."""
        self._steps.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._steps.get()) is not None:
            step, done = item
            error: BaseException | None = None
            try:
                step()
            except BaseException as raised:  # whatever it was, the loop must hear of it
                error = raised
            try:
                self._loop.call_soon_threadsafe(done, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
