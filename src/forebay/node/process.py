"""ChildProcess: a child as the kernel sees it. Its start, its output, its end in milliseconds."""

import asyncio
import mmap
import os
import signal
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from forebay.node.frames import HEADER, KEPT_AT, PAGE_BYTES, PAGE_KEPT
from forebay.node.log_tail import LogTail
from forebay.node.spawn import spawn

LOG_READ_BYTES: Final = 64 * 1024
LOG_READS_LAST: Final = 16  # reads of what is left in the pipe at the end of a call


class ChildProcess:
    """A process with a group of its own, its output in `log`, and a page of memory shared with us."""

    def __init__(self) -> None:
        self.log = LogTail()
        self.returncode: int | None = None

    async def connect(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        protocol: Callable[[], asyncio.Protocol],
    ) -> asyncio.WriteTransport:
        """Start it with a socket to us, and return our end of that. Raises OSError, and leaves nothing behind
        then."""
        ours, theirs = socket.socketpair()
        with ExitStack() as undo:
            undo.callback(ours.close)
            with theirs:
                self.start(command, env, cwd, theirs.fileno())
            undo.callback(self.discard)
            ours.setblocking(False)
            transport: asyncio.WriteTransport
            transport, _ = await asyncio.get_running_loop().create_unix_connection(protocol, sock=ours)
            undo.pop_all()
        return transport

    def start(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None, line: int) -> None:
        """Start it; `line` and the shared page are its only descriptors of ours.

        The command gets `--fd` and `--mark`. Raises OSError, and leaves nothing open or running then.
        """
        with (
            ExitStack() as given,
            ExitStack() as undo,
        ):  # where there is one descriptor too few, any of it fails
            log, log_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            undo.callback(os.close, log)
            given.callback(os.close, log_end)
            os.set_blocking(log_end, True)
            mark = os.memfd_create("forebay-mark", os.MFD_CLOEXEC)
            given.callback(os.close, mark)
            os.ftruncate(mark, PAGE_BYTES)
            self._page = mmap.mmap(mark, PAGE_BYTES)
            undo.callback(self._page.close)
            options = ("--fd", str(line), "--mark", str(mark))
            self._process = spawn(
                [*command, *options], env=env, fds=(line, mark), stdout=log_end, stderr=log_end, cwd=cwd
            )
            self.pid = self._process.pid
            undo.callback(self._process.wait)
            undo.callback(self.kill_group)
            self._pidfd = os.pidfd_open(self.pid)
            undo.pop_all()
        self._log_fd: int | None = log

    def watch(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]) -> None:
        """Read its output and call `on_exit` once when it is dead, reaped and its group killed."""
        self._loop = loop
        self.log.pull = self.read_log
        self._on_exit = on_exit
        loop.add_reader(self._pidfd, self._ended)
        if self._log_fd is not None:
            loop.add_reader(self._log_fd, self._read_log)

    def kill_group(self) -> None:
        """Kill it and all it started in its group; its number is its own until it is reaped."""
        if self.returncode is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def discard(self) -> None:
        """Kill and forget a process that was never watched."""
        self.kill_group()
        self.returncode = self._process.wait()
        os.close(self._pidfd)
        if self._log_fd is not None:
            os.close(self._log_fd)
        self._page.close()

    def word(self, number: int) -> int:
        """Return a number in the shared page; 0 at first, and after `forget_page`."""
        if self._page.closed:
            return 0
        (value,) = struct.unpack_from("=Q", self._page, 8 * number)
        return int(value)

    def kept(self) -> bytes:
        """Return the results that it has not sent, as one msgpack array of what it left; nothing after
        `forget_page`."""
        count, end = divmod(self.word(PAGE_KEPT), 1 << 32)
        return b"\x90" if not count else b"\xdd" + HEADER.pack(count) + self._page[KEPT_AT:end]

    def forget_page(self) -> None:
        """Give the page back."""
        self._page.close()

    def _ended(self) -> None:
        # First the group, while the dead leader still holds the number.
        self.kill_group()
        self.returncode = self._process.poll()
        if self.returncode is None:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.read_log()
        self._close_log()
        self._on_exit()

    def read_log(self) -> None:
        """Take what lies in the pipe now, so much at most as a flood may bring."""
        for _ in range(LOG_READS_LAST):
            if not self._read_log():
                break

    def _read_log(self) -> bool:
        """Take one piece of output; False when there is none."""
        if self._log_fd is None:
            return False
        try:
            data = os.read(self._log_fd, LOG_READ_BYTES)
        except BlockingIOError:
            return False
        if not data:  # user code closed both ends of its output; that is no reason to die
            self._close_log()
            return False
        self.log.feed(data)
        return True

    def _close_log(self) -> None:
        if self._log_fd is not None:
            self._loop.remove_reader(self._log_fd)
            os.close(self._log_fd)
            self._log_fd = None
