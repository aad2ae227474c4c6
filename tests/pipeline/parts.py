"""Stages, sources and sinks for tests of pipelines; at the top of a module, so that processes can import them."""

import os
import signal
import threading
import time

import numpy

from forebay import Failed
from forebay.streams.ports import Captured

WAIT_MAX_S = 30.0


def frame_of(value=1, shape=(8, 12, 3)):
    return numpy.full(shape, value, "uint8")


def frames(count, shape=(8, 12, 3)):
    return [frame_of(number % 251, shape) for number in range(count)]


def first_byte(value):
    return int(value.flat[0])


def twice(value):
    return value * 2


def same(value):
    return value


def shape_of(value):
    return list(value.shape)


def none_of_odd(value):
    return None if int(value.flat[0]) % 2 else value


def fails_on_three(value):
    if int(value.flat[0]) == 3:
        raise ValueError("three")
    return int(value.flat[0])


def not_json(value):
    return object() if int(value.flat[0]) == 1 else {"n": int(value.flat[0]), 5: (1, 2), "b": b"x"}


class Detect:
    def load(self, device):
        self.device = str(device)

    def predict(self, values):
        return [{"max": int(value.max()), "device": self.device, "pid": os.getpid()} for value in values]


class Broken:
    def load(self, device):
        raise RuntimeError("no weights")

    def predict(self, values):
        return values


class DiesLoading:
    def load(self):
        os._exit(7)

    def predict(self, values):
        return values


class DiesOnThree:
    def predict(self, values):
        if any(int(value.flat[0]) == 3 for value in values):
            os.kill(os.getpid(), 9)
        return [int(value.flat[0]) for value in values]


class HangsOnThree:
    def predict(self, values):
        if int(values[0].flat[0]) == 3:
            time.sleep(600)
        return [int(value.flat[0]) for value in values]


class OneFails:
    def predict(self, values, facts):
        assert len(values) == len(facts)
        return [Failed("odd") if one.seq % 2 else one.seq for one in facts]


class WrongCount:
    def predict(self, values):
        return values[1:]


class Gate:
    """A stage that waits until it is let go on; counts what is inside."""

    def __init__(self):
        self.open = threading.Event()
        self.inside = threading.Semaphore(0)

    def __call__(self, value):
        self.inside.release()
        assert self.open.wait(WAIT_MAX_S)
        return value


class Camera:
    """A live source that is fed by hand. Remembers what it is told."""

    def __init__(self, stream="cam", *, live=True, clock=time.time):
        self.stream, self.live, self.item_bytes_max = stream, live, None
        self.told, self.closed, self.taken = [], False, 0
        self._frames, self._ready, self._clock = [], threading.Condition(), clock

    def feed(self, *values, at=None):
        with self._ready:
            self._frames += [Captured(frame_of(v), self.stream, at or self._clock()) for v in values]
            self._ready.notify()

    def end(self):
        self.feed()
        with self._ready:
            self._frames.append(None)
            self._ready.notify()

    def __iter__(self):
        while True:
            with self._ready:
                assert self._ready.wait_for(lambda: self._frames or self.closed, WAIT_MAX_S)
                if self.closed:
                    return
                captured = self._frames.pop(0)
                self.taken += 1
            if captured is None:
                return
            yield captured

    def press(self, pressure):
        self.told.append(pressure)

    def counts(self):
        return {"reconnects": 2}

    def close(self):
        with self._ready:
            self.closed = True
            self._ready.notify()


def ended(value):
    """Fork a process and end it by SIGTERM; return the signal it died of."""
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    return os.WTERMSIG(os.waitpid(child, 0)[1])
