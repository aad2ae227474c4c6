"""The errors of a queue of frames: each one of ours, and the one multiprocessing.Queue would raise."""

import queue

from forebay.errors import NoFrameError, QueueFullError, StreamEndedError


class FullError(QueueFullError, queue.Full):
    """There was no room for the frame."""


class EmptyError(NoFrameError, queue.Empty):
    """No frame came in time."""


class ClosedError(StreamEndedError, ValueError):
    """This process has closed the queue."""
