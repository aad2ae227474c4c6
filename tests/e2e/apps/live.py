"""What the tests of live events run: parts, progress and checkpoints, at the pace the payload says."""

import asyncio
import os
import sys
import time

import forebay

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()


@app.task(attempts_max=5, backoff="100ms")
def pages(x, ctx: forebay.Context):
    """Read pages one after the other and remember how far it came. x: [name, pages, seconds a page, die at].

    In place of the seconds a directory: a page waits until there is a file of its number, and the death until
    there is one named die.
    """
    name, count, pace, die_at = x
    done = ctx.checkpoint or []
    note("resume", f"{name}.{len(done)}", ctx.attempt)
    for page in range(len(done), count):
        if page == die_at and ctx.attempt == 1:
            while isinstance(pace, str) and not os.path.exists(f"{pace}/die"):
                time.sleep(0.01)
            os.kill(os.getpid(), 9)
        if isinstance(pace, str):
            while not os.path.exists(f"{pace}/{page}"):
                time.sleep(0.01)
        else:
            time.sleep(pace)
        note("page", f"{name}.{page}", ctx.attempt)
        done.append(page)
        ctx.checkpoint = done
        ctx.progress((page + 1) / count, f"page {page + 1}")
    return done


@app.task(attempts_max=3, backoff="100ms")
def words(x, ctx: forebay.Context):
    """Yield words. x: [count, seconds between two, fail at].

    In place of the seconds a directory: behind a word it waits for a file of this attempt and this number.
    """
    count, pace, fail_at = x
    for number in range(count):
        if number == fail_at and ctx.attempt == 1:
            raise RuntimeError("on the first attempt")
        yield f"word{number}"
        if isinstance(pace, str):
            while not os.path.exists(f"{pace}/{ctx.attempt}.{number}"):
                time.sleep(0.01)
        else:
            time.sleep(pace)


@app.task()
async def tokens(x):
    """Yield numbers, asynchronously. x: [count, seconds between two]."""
    for number in range(x[0]):
        yield number
        await asyncio.sleep(x[1])


@app.task(batch_max=8, batch_wait="20ms")
class Spell:
    """Yield the letters of each text, in turn."""

    def predict(self, items: list[str]):
        for place in range(max(len(text) for text in items)):
            for index, text in enumerate(items):
                if place < len(text):
                    yield index, text[place]
