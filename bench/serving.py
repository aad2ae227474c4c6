"""Goodput under overload: requests with a deadline of 200 ms to a model of 20 ms + 2 ms an item, batches of 16.

    python bench/serving.py [levels changes burst stop echo] [--seconds 15] [--times 2 5] [--json FILE]

Everything of Forebay is at its default: the task says its batch and its deadline. The load is open loop, Poisson,
latency counts from the scheduled instant, clients give up after 2 s. GOOD is a 200 with the right output within
200 ms. Each level has a server of its own where it is above the capacity, 3 s of 30/s before it, and 5 s of half
the capacity after it.
"""

import argparse
import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.burst import Call
from bench.harness import Served, machine_lock, quantile, show, wrk
from bench.openloop import GAVE_UP, REFUSED, RESET, Due, OpenLoop, poisson

CAPACITY = 16 / (0.020 + 16 * 0.002)
SLO_S = 0.200
GIVE_UP_S = 2.0
BARS = {0.5: 0.49, 0.9: 0.89, 1.0: 0.95, 2.0: 0.98, 5.0: 0.98, 10.0: 0.98}
SIZE_B = 1024
WINDOW_S = 0.25
PARTS = ("levels", "changes", "burst", "stop", "echo")


def request(number, task="Model", *, cost=None, tenant=""):
    """Return one request of 1 KB."""
    told = {"id": number} if cost is None else {"id": number, "cost": cost}
    text = json.dumps({**told, "pad": ""}, separators=(",", ":"))
    body = text[:-2] + "x" * (SIZE_B - len(text)) + text[-2:]
    head = f"POST /v1/predict/{task} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    if tenant:
        head += f"Forebay-Tenant: {tenant}\r\n"
    return (head + f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def arrivals(phases, chance, make=request):
    """Return what is due, and (start, end) of each phase of (a second, seconds)."""
    due, spans, at = [], [], 0.0
    for rate, seconds in phases:
        due += [Due(when, make(len(due) + n)) for n, when in enumerate(poisson(rate, at, seconds, chance))]
        spans.append((at, at + seconds))
        at += seconds
    return due, spans


def right(shot, number):
    """Say whether an answer is the right output, by itself or as a list of one."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        told = json.loads(shot.body)
        told = told[0] if isinstance(told, list) else told
        return (told["y"] if isinstance(told, dict) else told) == 2 * number + 1
    return False


def good(shots):
    """Return which shots are GOOD, in order."""
    return [
        shot.status == 200 and shot.latency_s <= SLO_S and right(shot, number)
        for number, shot in enumerate(shots)
    ]


def within(shots, marks, span):
    """Return the shots due in a span, with their marks."""
    return [(s, mark) for s, mark in zip(shots, marks, strict=True) if span[0] <= s.due_s < span[1]]


def ms(values, share):
    """Return a quantile in milliseconds."""
    return 1000 * quantile(values, share) if values else 0.0


def level_figures(shots, marks, span, capacity=CAPACITY):
    """Return the figures of one phase."""
    inside = within(shots, marks, span)
    seconds = span[1] - span[0]
    done = [shot.latency_s for shot, _ in inside if shot.status == 200]
    refused = [shot.latency_s for shot, _ in inside if shot.status in (429, 503)]
    statuses = Counter(shot.status for shot, _ in inside)
    untold = sum(shot.status in (429, 503) and b"\r\nretry-after: " not in shot.head for shot, _ in inside)
    count = sum(mark for _, mark in inside)
    return {
        "offered_per_s": len(inside) / seconds,
        "goodput": count / seconds / capacity,
        "good_of_sent": count / max(1, len(inside)),
        "p50_ms": ms(done, 0.5),
        "p99_ms": ms(done, 0.99),
        "refused_p50_ms": ms(refused, 0.5),
        "refused_p99_ms": ms(refused, 0.99),
        "refused_without_time": untold,
        "lag_p99_ms": ms([shot.sent_s - shot.due_s for shot, _ in inside], 0.99),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
    }


def recovery(shots, marks, start, end):
    """Return the seconds after `start` from which every quarter second of arrivals is at least 95 % GOOD, and
    of each one that was not what became of its arrivals."""
    recovered, broken = 0.0, []
    at = start
    while at < end:
        inside = within(shots, marks, (at, at + WINDOW_S))
        bad = [shot for shot, mark in inside if not mark]
        if inside and len(bad) > 0.05 * len(inside):
            recovered = at + WINDOW_S - start
            late = [shot.latency_s for shot in bad if shot.status == 200]
            broken.append(
                {
                    "from_s": at - start,
                    "arrived": len(inside),
                    "not_good": {str(k): v for k, v in Counter(shot.status for shot in bad).items()},
                    "latest_ms": ms(late, 1.0),
                    "lag_ms": ms([shot.sent_s - shot.due_s for shot, _ in inside], 1.0),
                }
            )
        at += WINDOW_S
    return recovered, broken


@contextlib.contextmanager
def served(**env):
    """A server of the models, alone on the machine as far as other benches go."""
    with machine_lock():
        server = Served("model.py", workers=1, FOREBAY_QUEUE_MAX="100000", **env)
        try:
            yield server.wait_ready()
        finally:
            server.stop()


def run(server, phases, seed=1, make=request, hooks=()):
    """Play phases and return (shots, marks, spans)."""
    due, spans = arrivals(phases, random.Random(seed), make)
    shots = OpenLoop(server.port, give_up_s=GIVE_UP_S).run(due, hooks=hooks)
    return shots, good(shots), spans


def levels(seconds, chosen=None):
    """The table of the issue, or the chosen levels of it."""
    rows, figures = [], {}
    chosen = chosen or list(BARS)
    low = [times for times in chosen if times <= 1.0]
    if low:
        with served() as server:
            phases = [(30.0, 3.0), *((times * CAPACITY, seconds) for times in low)]
            shots, marks, spans = run(server, phases)
            for times, span in zip(low, spans[1:], strict=True):
                figures[times] = level_figures(shots, marks, span)
    for times in (one for one in chosen if one > 1.0):
        with served() as server:
            before_mb = server.rss_mb()
            shots, marks, spans = run(
                server, [(30.0, 3.0), (times * CAPACITY, seconds), (0.5 * CAPACITY, 5.0)]
            )
            figures[times] = level_figures(shots, marks, spans[1])
            figures[times]["recovery_s"], figures[times]["unrecovered"] = recovery(shots, marks, *spans[2])
            figures[times]["rss_mb"] = [before_mb, server.rss_mb()]
    for times, found in figures.items():
        bar = f">= {BARS.get(times, 0.98)}; p99 <= 200 ms" + ("; recovery <= 0.5 s" if times > 1 else "")
        told = f"{found['goodput']:.3f}  p99 {found['p99_ms']:.0f} ms"
        if times >= 1:
            told += f"  refused p99 {found['refused_p99_ms']:.1f} ms"
        if times > 1:
            told += f"  recovery {found['recovery_s']:.2f} s"
        rows.append((f"{times}x: goodput / capacity", told, bar))
        rows += [(f"{times}x: not recovered", str(one), "") for one in found.get("unrecovered", ())]
    return rows, figures


def changes(seconds):
    """What no fixed bound can do: the model changes, the items, the tasks, the tenants."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "factor"
        file.write_text("1")
        with served(BENCH_FACTOR=str(file)) as server:
            hooks = [(9.0, lambda: file.write_text("2")), (18.0, lambda: file.write_text("1"))]
            shots, marks, _ = run(server, [(30.0, 3.0), (2 * CAPACITY, 24.0)], hooks=hooks)
    for name, span, capacity in (
        ("twice as slow, from 2 s after", (11.0, 18.0), CAPACITY / 2),
        ("fast again, from 2 s after", (20.0, 27.0), CAPACITY),
    ):
        found[name] = level_figures(shots, marks, span, capacity)["goodput"]
    with served() as server:
        chance = random.Random(5)
        costs = [0.25 if chance.random() < 0.8 else 4.0 for _ in range(100_000)]
        phases = [(30.0, 3.0), (3 * CAPACITY, seconds)]
        shots, marks, spans = run(server, phases, make=lambda n: request(n, cost=costs[n]))
        # The capacity of the moment is time: what a second holds depends on the costs that are drawn.
        useful = sum(
            0.020 / 16 + 0.002 * costs[n]
            for n, (shot, mark) in enumerate(zip(shots, marks, strict=True))
            if mark and spans[1][0] <= shot.due_s < spans[1][1]
        )
        found["costs of 1 to 16 mixed, 3x: its time that was good"] = useful / seconds
    with served() as server:
        names = ("quick", "middling", "slow")
        chance = random.Random(7)
        kinds = [chance.choice(names) for _ in range(100_000)]
        each = dict(zip(names, (0.002, 0.010, 0.020), strict=True))
        phases = [(10.0, 3.0), (600.0, seconds)]
        shots, marks, spans = run(server, phases, make=lambda n: request(n, kinds[n]))
        useful = sum(
            each[kinds[n]]
            for n, (shot, mark) in enumerate(zip(shots, marks, strict=True))
            if mark and spans[1][0] <= shot.due_s < spans[1][1]
        )
        found["three tasks on one worker, 6x: its time that was good"] = useful / seconds
    with served() as server:
        chance = random.Random(8)
        loud = [chance.random() < 0.97 for _ in range(100_000)]
        phases = [(30.0, 3.0), (8 * CAPACITY, seconds)]
        shots, marks, spans = run(
            server, phases, make=lambda n: request(n, tenant="loud" if loud[n] else "quiet")
        )
        found["one tenant floods, 8x"] = level_figures(shots, marks, spans[1])["goodput"]
        quiet = [
            mark
            for n, (shot, mark) in enumerate(zip(shots, marks, strict=True))
            if not loud[n] and spans[1][0] <= shot.due_s < spans[1][1]
        ]
        found["of the quiet tenant's, good"] = sum(quiet) / len(quiet)
    return [(name, f"{value:.3f}", ">= 0.95") for name, value in found.items()], found


def most_within(seconds):
    """Return how many items the model can do in so long after a burst: full batches, and what the rest holds."""
    fixed_s, each_s, full_s = 0.020, 0.002, 16 / CAPACITY
    runs, left_s = divmod(seconds, full_s)
    return int(16 * runs + max(0.0, (left_s - fixed_s) / each_s) + 1e-9)


def burst(count=1200):
    """So many requests at once, each on a new connection, from a process of its own (`burst.py`).

    It is over before the model has done five batches, so the capacity in a second says nothing of it. What can be
    GOOD is what the model does within the SLO of the first instant, with a generator that takes no time to open
    its connections; what the generator took stands beside it.
    """
    with served() as server, tempfile.NamedTemporaryFile() as file:
        OpenLoop(server.port).run([Due(n / 30, request(n)) for n in range(60)])
        file.write(b"".join(request(n) for n in range(count)))
        file.flush()
        script = [sys.executable, str(Path(__file__).with_name("burst.py"))]
        told = subprocess.run(
            [*script, str(server.port), str(count), file.name], capture_output=True, check=True
        )
    calls = [Call(*row) for row in json.loads(told.stdout)]
    statuses = Counter(call.status for call in calls)
    broken = sum(statuses[status] for status in (GAVE_UP, RESET, REFUSED))
    untold = sum(call.status in (429, 503) and "\r\nretry-after: " not in call.text.lower() for call in calls)
    done = [call for call in calls if call.status == 200]
    figures = {
        "statuses": {str(k): v for k, v in statuses.items()},
        "broken": broken,
        "without_time": untold,
        "opened_s": max(call.sent_s for call in calls),
        "first_s": min((call.done_s for call in done), default=None),
        "last_s": max(call.done_s for call in calls),
        "good": sum(call.done_s <= SLO_S for call in done),
        "good_of_sent": sum(call.done_s - call.sent_s <= SLO_S for call in done),
        "possible": most_within(SLO_S),
    }
    rows = [
        (f"{count} at once: reset, refused by the socket, timed out", str(broken), "0"),
        ("refused without Retry-After", str(untold), "0"),
        ("let in, and told 504 later", str(statuses[504]), ""),
        ("the last answer after", f"{figures['last_s']:.2f} s", "<= 1 s"),
        (
            "GOOD within 200 ms of the first instant, of those possible",
            f"{figures['good']}/{figures['possible']}",
            "",
        ),
        ("GOOD within 200 ms of their own sending", str(figures["good_of_sent"]), ""),
        ("the generator had opened and sent all after", f"{figures['opened_s']:.2f} s", ""),
    ]
    return rows, figures


def stop():
    """SIGTERM at half load: what was let in is answered."""
    with served() as server:
        due, _ = arrivals([(0.5 * CAPACITY, 6.0)], random.Random(2))
        hooks = [(4.0, lambda: server.process.send_signal(signal.SIGTERM))]
        shots = OpenLoop(server.port, give_up_s=GIVE_UP_S).run(due, hooks=hooks)
        server.process.wait(30)
    after = [shot for shot in shots if shot.due_s >= 4.0]
    before = [shot for shot in shots if shot.due_s < 4.0]
    failed = [shot.status for shot in before if shot.status not in (200, 429)]
    statuses = Counter(shot.status for shot in after)
    figures = {"failed": len(failed), "after": {str(k): v for k, v in statuses.items()}}
    rows = [
        ("SIGTERM at half load: sent before it and failed", str(len(failed)), "0"),
        ("sent after it: answered 503, connection refused", f"{statuses[503]}, {statuses[-2]}", ""),
    ]
    return rows, figures


def echo(seconds=10):
    """A model that does nothing, under wrk -c64."""
    with served() as server:
        url = f"http://127.0.0.1:{server.port}/v1/predict/Echo"
        body = json.dumps({"id": 0, "text": "x" * 1006}, separators=(",", ":"))
        subprocess.run(wrk(url, body, expected=200, seconds=2), capture_output=True, check=True)
        command = wrk(url, body, expected=200, seconds=seconds)
        text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    refused = int(re.search(r"refused (\d+)", text)[1])
    return [("echo, wrk -c64", f"{rate:,.0f}/s, {refused} not 200", ">= 9,000/s")], {
        "per_s": rate,
        "other": refused,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", default=PARTS, metavar="part", help=f"of {', '.join(PARTS)}; all without"
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="of a level; shorter runs flatter")
    parser.add_argument("--times", type=float, nargs="+", help="the levels, of the capacity; default: all")
    parser.add_argument("--json", help="write the figures to this file too")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    parts = {
        "levels": lambda: levels(given.seconds, given.times),
        "changes": lambda: changes(given.seconds),
        "burst": burst,
        "stop": stop,
        "echo": echo,
    }
    rows, figures = [], {"at": time.time()}
    for part in given.parts:
        more, figures[part] = parts[part]()
        rows += more
        for row in more:
            print("  ".join(row), file=sys.stderr, flush=True)
    show("Requests with a deadline of 200 ms, default settings", rows, figures, given.json)


if __name__ == "__main__":
    main()
