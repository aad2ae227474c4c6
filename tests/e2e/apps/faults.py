"""Handlers that do what handlers should not: hold the GIL, ignore everything, answer oddly, die."""

import ctypes
import os
import signal
import socket
import sys
import time

import forebay

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()


@app.task()
def echo(x):
    return x


@app.task(backoff="100ms")
def nap(x, ctx: forebay.Context):
    """x: [name, seconds]."""
    note("start", x[0], ctx.attempt)
    time.sleep(x[1])
    note("end", x[0], ctx.attempt)
    return x[0]


@app.task()
def hold_gil(x, ctx: forebay.Context):
    """x: [name, whole seconds], all of it inside one native call: between two the reader could answer."""
    note("start", x[0], ctx.attempt)
    ctypes.PyDLL(None).sleep(x[1])
    note("end", x[0], ctx.attempt)
    return x[0]


@app.task(attempts_max=3, backoff="100ms", deaths_max=3)
def poison(x, ctx: forebay.Context):
    """x: [name, kind]."""
    note("start", x[0], ctx.attempt)
    match x[1]:
        case "segfault":
            ctypes.string_at(0)
        case "os._exit":
            os._exit(1)
        case "sys.exit":
            sys.exit(0)
        case "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hog":
            held = []
            while True:
                held.append(b"x" * 8_000_000)
    time.sleep(0.002)
    note("end", x[0], ctx.attempt)
    return x[0]


@app.task(batch_max=8, batch_wait="20ms", attempts_max=3, backoff="100ms")
class Frail:
    """A batch that dies when it holds a deadly item. Items: [name, deadly]."""

    def predict(self, items: list, contexts: list[forebay.Context]) -> list:
        for item, context in zip(items, contexts, strict=True):
            note("start", item[0], context.attempt)
        time.sleep(0.01)
        if any(item[1] for item in items):
            ctypes.string_at(0)
        return [item[0] for item in items]


@app.task(attempts_max=5, backoff="0s")
def again(x, ctx: forebay.Context):
    note("start", x, ctx.attempt)
    raise forebay.Retry(after=0)


@app.task(attempts_max=2, backoff="2s")
def second_time(x, ctx: forebay.Context):
    note("start", x, ctx.attempt)
    if ctx.attempt == 1:
        raise RuntimeError("the first time")
    return x


@app.task(timeout="1s", attempts_max=1)
def overrun(x, ctx: forebay.Context):
    """x: [name, kind]."""
    note("start", x[0], ctx.attempt)
    end = time.monotonic() + 30
    match x[1]:
        case "sleep":
            time.sleep(30)
        case "native":
            ctypes.PyDLL(None).usleep(900_000)
            while time.monotonic() < end:
                ctypes.PyDLL(None).usleep(900_000)
        case "socket":
            server = socket.create_server(("127.0.0.1", 0))
            with socket.create_connection(server.getsockname()) as one:
                one.recv(1)
        case "swallow":
            while time.monotonic() < end:
                try:
                    time.sleep(0.2)
                except BaseException:
                    pass
    return "done"


@app.task(attempts_max=1)
def tick(x, ctx: forebay.Context):
    """A line every 50 ms; ends early when asked to and x[2] says it listens."""
    note("start", x[0], ctx.attempt)
    for _ in range(int(x[1] / 0.05)):
        note("tick", x[0], ctx.attempt)
        if x[2] and ctx.cancelled:
            raise RuntimeError("stopped early")
        time.sleep(0.05)
    return x[0]


@app.task(attempts_max=2, backoff="100ms")
def odd(x, ctx: forebay.Context):
    """Results and errors as odd as can be."""
    note("start", x.replace(" ", "_"), ctx.attempt)
    match x:
        case "nul":
            print("a\0line")
            return "a\0b"
        case "nan":
            return float("nan")
        case "infinity":
            return [1.0, float("-inf")]
        case "negative zero":
            return -0.0
        case "2^63":
            return 2**63
        case "2^53+1":
            return 2**53 + 1
        case "1e-400":
            return 1e-400
        case "404":
            error = RuntimeError("404 not found, expired")
            error.code = error.status = 404
            raise forebay.Permanent(error)
        case "nul error":
            raise forebay.Permanent("a\0b")


@app.task(attempts_max=3, backoff="100ms")
def large(x, ctx: forebay.Context):
    note("start", x[0], ctx.attempt)
    return "x" * x[1]
