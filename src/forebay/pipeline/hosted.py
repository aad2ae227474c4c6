"""The process of a pipeline that a server runs: starts it, says what it does, and ends with the server."""

import dataclasses
import socket
import sys
import threading
from pathlib import Path

from forebay.child import guard
from forebay.child.loading import LoadError, load_app
from forebay.errors import AppError, ForebayError
from forebay.pipeline.board import Board
from forebay.pipeline.command import LOOK_S, quietly
from forebay.pipeline.running import Running
from forebay.pipeline.shared import Desk, use
from forebay.sources.pushed import served

EXIT_CANNOT_START, EXIT_SOURCE = 3, 1


def main(arguments: list[str]) -> int:
    """Run one pipeline; started by a server only. Returns 0 when its sources have ended."""
    app, name, *rest = arguments
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    guard.die_with(int(options["--parent"]))
    guard.ignore_signals()
    fds = int(options["--fd"]), int(options["--mark"])
    for fd in fds:
        guard.keep_from_grandchildren(fd)
    try:
        running, desk = _started(app, name, socket.socket(fileno=fds[0]))
    except (ForebayError, LoadError) as error:
        sys.stderr.write(f"pipeline {name}: {error}\n")
        return EXIT_CANNOT_START
    return _watched(running, desk, Board(Path(options["--data"])), name)


def _started(app: str, name: str, sock: socket.socket) -> tuple[Running, Desk]:
    found = load_app(app)
    desk = Desk(sock, found.tasks)
    use(desk)
    served()
    running = found.pipelines[name]()
    if not isinstance(running, Running):
        raise AppError(f"it must return what Pipeline.start returned, not {type(running).__name__}")
    desk.announce()
    return running, desk


def _watched(running: Running, desk: Desk, board: Board, name: str) -> int:
    threading.Thread(target=_end, args=(running, desk), name="forebay-end", daemon=True).start()
    try:
        while not running.wait(LOOK_S):
            quietly(lambda: board.post(dataclasses.replace(running.report(), pipeline=name)))
    finally:
        quietly(lambda: board.take_down(name))
    for error in running.errors:
        sys.stderr.write(f"pipeline {name}: a source failed: {type(error).__name__}: {error}\n")
    return EXIT_SOURCE if running.errors else 0


def _end(running: Running, desk: Desk) -> None:
    desk.ending.wait()
    running.stop(desk.grace_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
