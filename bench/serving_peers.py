"""Requests under overload: Forebay beside other servers of models, in turns in one run on one machine.

    python bench/serving_peers.py                                # all rows, 2x and 10x of 6 s, eleven minutes
    python bench/serving_peers.py levels --times 0.9 1 2 5 10 --seconds 15         # all levels, half an hour
    python bench/serving_peers.py burst --only forebay mosec mosec-tuned --json out.json
    python bench/serving_peers.py levels --only --also mosec '{"capacity": 48}'   # other settings of a peer

The model, the load and what is GOOD are those of serving.py: 20 ms and 2 ms an item, sixteen at once, 307.7 a second
at most; Poisson arrivals that leave when they are due; a 200 with the right output within 200 ms of that instant;
clients give up after 2 s. Each figure has a server of its own. All rows play one part before the next part begins.

levels   2 s of 30/s, so many seconds at so many times the capacity, then 4 s of half of it (above 1x)
burst    1,200 requests at once, each on a new connection; 5 s for the answers
slower   2x: 5 s as it is, 5 s twice as slow, 5 s as before; from 2 s after each change, of the capacity then

Every row is told what its model takes at most in a batch, and writes no access log. Rows by the peer's name alone have
nothing else set.
Forebay has one row: its task says its batch and its deadline, and nothing is tuned to the model or the machine.
A row that ends in -tuned has settings found with this very model, the best of those tried at 3x for 5 s (of fastapi:
worked out from it). That is more than a user knows of a model that is not a sleep, so it is in the peer's favour; --also
tries others:

litserve-tuned   a request that has waited 100 ms is given up (30 s); a batch waits 5 ms for more (0)
bentoml-tuned    32 requests at once (no bound)
mosec-tuned      24 requests at once, running ones too (1,024); a batch waits 5 ms for more (10)
ray-tuned        24 calls of the replica (5), 4 before it (no bound); a batch waits 20 ms for more (10)
fastapi          no product: an asyncio queue of 100, a task that makes batches, a thread; full is 503, Retry-After: 1
fastapi-tuned    a queue of 32, so that the last one in is out within three batches, 156 ms; who has waited 148 ms
                 when a batch is made is refused, since a full batch would end too late

Above capacity no setting makes up for a queue that is too long; short runs flatter a peer near its limit, so compare
runs of equal length. A refusal is a 429 or 503; any other answer but 200 (408, 500, 504) was let in and given up. RSS is
the sum over the server's processes of the most each held, what they share counted in each; "others' cores" is what
neither the server nor the generator used meanwhile: near 0 on a machine that is alone.
On a machine that others use, `chrt -r 2` before the command keeps them out; the generator then goes before the servers.
The environments are made under bench/.peers when they are missing, from the pins in peers/requirements; a peer that
cannot be installed or does not start stands in the table with what it said.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))
import psutil

from bench.burst import Call
from bench.harness import machine_lock
from bench.openloop import GAVE_UP, REFUSED, RESET, Due, OpenLoop
from bench.peering import environment
from bench.serving import CAPACITY, SLO_S, ms, recovery, run, within
from bench.serving_rows import ROWS, NotStartedError, Row, running
from bench.serving_tables import tables

WARM = (30.0, 2.0)
AFTER_S = 4.0
STEP_S = 5.0  # of `slower`, between two changes
SETTLE_S = 2.0
CALLS = 1200
BURST_GIVE_UP_S = 5.0
TIMES = (2.0, 10.0)
SECONDS = 6.0
REFUSALS = (429, 503)
ANSWERS = (200, *REFUSALS, RESET, REFUSED, GAVE_UP)  # any other status: let in, and given up by the server
PARTS = ("levels", "burst", "slower")
FILES_MAX = 20_000  # 10x for the 2 s of a client's patience, three times over


def broken(statuses):
    """Return how many were reset, refused by the socket and timed out."""
    return {name: statuses[code] for name, code in (("reset", RESET), ("socket", REFUSED), ("late", GAVE_UP))}


def figures(shots, marks, span, capacity=CAPACITY):
    """Return the figures of one span of arrivals."""
    inside = within(shots, marks, span)
    seconds = span[1] - span[0]
    refused = [shot for shot, _ in inside if shot.status in REFUSALS]
    expired = [shot.latency_s for shot, _ in inside if shot.status not in ANSWERS]
    told = sum(b"\r\nretry-after: " in shot.head for shot in refused)
    statuses = Counter(shot.status for shot, _ in inside)
    return {
        "offered_per_s": len(inside) / seconds,
        "goodput": sum(mark for _, mark in inside) / seconds / capacity,
        "p99_ms": ms([shot.latency_s for shot, _ in inside if shot.status == 200], 0.99),
        "told": told,
        "untold": len(refused) - told,
        "refused_p99_ms": ms([shot.latency_s for shot in refused], 0.99),
        "expired": len(expired),
        "expired_p99_ms": ms(expired, 0.99),
        "broken": broken(statuses),
        "lag_p99_ms": ms([shot.sent_s - shot.due_s for shot, _ in inside], 0.99),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
    }


def processor_s():
    """Return the seconds that all processors have worked since boot."""
    told = psutil.cpu_times()
    return told.user + told.nice + told.system + told.irq + told.softirq


@contextlib.contextmanager
def weighed(server, found):
    """Adds what the server held and took, and the cores that neither it nor this process (and its generator) used."""
    began, own, theirs, whole = time.perf_counter(), sum(os.times()[:4]), server.cpu_s(), processor_s()
    yield
    took = time.perf_counter() - began
    theirs, own = server.cpu_s() - theirs, sum(os.times()[:4]) - own
    found["rss_mb"] = server.rss_peak_mb()
    found["cores"] = theirs / took
    found["other_cores"] = max(0.0, (processor_s() - whole - theirs - own) / took)


def level(row: Row, times, seconds):
    """One level, and for those above the capacity what comes after it."""
    phases = [WARM, (times * CAPACITY, seconds)]
    if times > 1:
        phases.append((0.5 * CAPACITY, AFTER_S))
    found = {}
    with running(row) as server:
        with weighed(server, found):
            shots, marks, spans = run(server, phases, make=row.request)
        found |= figures(shots, marks, spans[1])
        if times > 1:
            found["recovery_s"], _ = recovery(shots, marks, *spans[2])
            found["watched_s"] = AFTER_S
    return found


def burst(row: Row, count=CALLS):
    """So many calls at once, from a process of its own."""
    found = {}
    with running(row) as server, tempfile.NamedTemporaryFile() as file:
        OpenLoop(server.port).run([Due(n / 30, row.request(n)) for n in range(60)])
        file.write(b"".join(row.request(n) for n in range(count)))
        file.flush()
        script = [sys.executable, str(Path(__file__).with_name("burst.py"))]
        with weighed(server, found):
            told = subprocess.run(
                [*script, str(server.port), str(count), file.name, str(BURST_GIVE_UP_S)],
                capture_output=True,
                check=True,
            )
    calls = [Call(*one) for one in json.loads(told.stdout)]
    refused = [call for call in calls if call.status in REFUSALS]
    expired = [call.done_s - call.sent_s for call in calls if call.status not in ANSWERS]
    retold = sum("\r\nretry-after: " in call.text.lower() for call in refused)
    answered = [call.done_s for call in calls if call.status > 0]
    return found | {
        "answered": sum(call.status == 200 for call in calls),
        "good": sum(call.status == 200 and call.done_s <= SLO_S for call in calls),
        "told": retold,
        "untold": len(refused) - retold,
        "refused_p99_ms": ms([call.done_s - call.sent_s for call in refused], 0.99),
        "expired": len(expired),
        "expired_p99_ms": ms(expired, 0.99),
        "broken": broken(Counter(call.status for call in calls)),
        "last_s": max(answered, default=BURST_GIVE_UP_S),
        "statuses": {str(k): v for k, v in sorted(Counter(call.status for call in calls).items())},
    }


def slower(row: Row):
    """The model takes twice as long in mid-run, and then as long as before."""
    changes = [WARM[1] + STEP_S * step for step in range(4)]
    found = {}
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "factor"
        file.write_text("1")
        hooks = [(changes[1], lambda: file.write_text("2")), (changes[2], lambda: file.write_text("1"))]
        with running(row, str(file)) as server, weighed(server, found):
            phases = [WARM, (2 * CAPACITY, 3 * STEP_S)]
            shots, marks, _ = run(server, phases, make=row.request, hooks=hooks)
    steps = (("before", CAPACITY), ("slow", CAPACITY / 2), ("again", CAPACITY))
    for (name, capacity), start in zip(steps, changes, strict=False):
        found[name] = figures(shots, marks, (start + SETTLE_S, start + STEP_S), capacity)
    return found | {"broken": dict(sum((Counter(found[name]["broken"]) for name, _ in steps), Counter()))}


def prepared(rows):
    """Make the environments; return why for each that cannot be made."""
    failed = {}
    for name in sorted({row.venv for row in rows if row.venv}):
        try:
            environment(name)
        except OSError as error:
            failed[name] = f"not installed: {error}"[:200]
        except subprocess.CalledProcessError as error:
            tool = Path(error.cmd[0]).name
            failed[name] = f"not installed: {tool} ended with {error.returncode}, which is told on stderr"
    return failed


def measure(row: Row, play, failed):
    """Return the figures of one row in one part, or why there are none."""
    if row.venv in failed:
        return {"failed": failed[row.venv]}
    try:
        return play(row)
    except NotStartedError as error:
        return {"failed": f"did not start: {error}"}
    except (OSError, subprocess.CalledProcessError) as error:
        return {"failed": f"broke the bench: {error}"[:200]}


def machine():
    """Say how fast the machine is just now, and who else is on it."""
    began = time.perf_counter()
    at = 0
    while at < 20_000_000:
        at += 1
    times = psutil.cpu_times()
    wanted = sum(times[:8]) - times.idle - times.iowait
    return {
        "loop_s": round(time.perf_counter() - began, 2),
        "load_average": round(os.getloadavg()[0], 2),
        "stolen_ratio": round(times.steal / max(1.0, wanted), 3),
    }


def allow_files():
    """Raise the number of open files to FILES_MAX, for this process and the servers, where that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def asked():
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [row.name for row in ROWS]
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--only", nargs="*", choices=names, metavar="ROW", default=names)
    parser.add_argument("--also", nargs=2, action="append", default=[], metavar=("ROW", "SETTINGS"))
    parser.add_argument(
        "--times", type=float, nargs="+", default=TIMES, help="levels, of the capacity (2 10)"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a level (6); shorter runs flatter")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    if unknown := {name for name, _ in given.also} - set(names):
        parser.error(f"no row is called {', '.join(sorted(unknown))}: {', '.join(names)}")
    return given


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers end with it, as after Ctrl-C
    given = asked()
    rows = [row for row in ROWS if row.name in given.only]
    by_name = {row.name: row for row in ROWS}
    rows += [
        replace(by_name[name], name=f"{name} {text}", settings=json.loads(text)) for name, text in given.also
    ]
    plays = {
        f"levels {times:g}x": lambda row, times=times: level(row, times, given.seconds)
        for times in given.times
        if "levels" in given.parts
    }
    plays |= {name: play for name, play in (("burst", burst), ("slower", slower)) if name in given.parts}
    allow_files()
    failed = prepared(rows)
    with machine_lock():
        found = {"seconds": given.seconds, "machine": [machine()], "parts": {}}
        for part, play in plays.items():
            results = found["parts"][part] = {}
            for row in rows:
                got = results[row.name] = measure(row, play, failed)
                print(f"{time.strftime('%T')} {part} {row.name}: {got}", file=sys.stderr, flush=True)
        found["machine"].append(machine())
    print(tables(found["parts"]))
    print(f"\nthe machine before and after: {found['machine']}")
    print(json.dumps(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
