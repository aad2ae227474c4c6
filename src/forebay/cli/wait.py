"""`forebay wait --headroom N`: come back when queues have room, so that a pipeline begins when it can."""

import time
from typing import Annotated

import typer

from forebay.cli.options import ApiKey, Json, Url, connect, seconds_of
from forebay.cli.show import clean, complain, print_json, say

HEADROOM_MAX = 1_000_000_000


def wait(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Whose queue; without one every queue.")
    ] = None,
    headroom: Annotated[
        int, typer.Option(min=1, max=HEADROOM_MAX, metavar="N", help="So many jobs must fit.")
    ] = 1,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long to wait.")] = "5m",
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Wait until a queue has room for so many jobs.

    0 when it has, 1 when it has none in time, 3 when the server cannot be reached.
    """
    left_s = seconds_of("--timeout", timeout)
    began = time.monotonic()
    with connect(url, api_key) as client:
        tasks = [task] if task is not None else [str(row.get("task")) for row in client.tasks()]
        for name in tasks:
            passed_s = time.monotonic() - began
            if not client.wait_headroom(name, headroom, timeout=max(0.0, left_s - passed_s)):
                if json_:
                    print_json(_answer(tasks, headroom, began, full=name))
                complain(f"the queue of {clean(name)} has no room for {headroom} after {timeout}")
                return 1
    if json_:
        print_json(_answer(tasks, headroom, began, full=None))
    else:
        say(clean(f"room for {headroom}: {', '.join(tasks)}"))
    return 0


def _answer(tasks: list[str], headroom: int, began: float, *, full: str | None) -> dict[str, object]:
    waited_s = round(time.monotonic() - began, 3)
    return {
        "tasks": tasks, "headroom": headroom, "has_room": full is None, "full": full, "waited_s": waited_s,
    }  # fmt: skip
