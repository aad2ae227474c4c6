"""The command as a process: pipes, closed descriptors, locales, signals."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.client.basin import Basin
from tests.waiting import until

pytestmark = pytest.mark.slow  # some forty real processes

FOREBAY = [sys.executable, "-m", "forebay"]
WAIT_S = 30


@pytest.fixture
def basin():
    with Basin() as found:
        yield found


def start(basin, *argv, env=None, **more):
    surroundings = {**os.environ, "FOREBAY_URL": basin.url, **(env or {})}
    surroundings.pop("PYTHONUNBUFFERED", None)  # else every line is flushed, and no last flush can fail
    return subprocess.Popen(
        [*FOREBAY, *argv], env=surroundings, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    )


def finish(process, given=None):
    out, err = process.communicate(given, timeout=WAIT_S)
    assert b"Traceback" not in (err or b"") and b"Exception" not in (err or b"")
    return process.returncode, out, err


@pytest.mark.parametrize("argv", [["jobs", "ls"], ["--help"], ["jobs", "ls", "--json"]])
def test_output_to_a_full_disk_is_not_a_success(basin, argv):
    with open("/dev/full", "w") as full:
        code, _, err = finish(start(basin, *argv, stdout=full))
    assert code == 1 and b"No space left" in err


def test_a_reader_that_goes_away_is_met_quietly(basin):
    read, write = os.pipe()
    os.close(read)
    code, _, err = finish(start(basin, "jobs", "ls", "--json", stdout=write))
    os.close(write)
    assert (code, err) == (1, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_do_no_harm(basin, tmp_path, closed):
    command = f"{sys.executable} -m forebay submit echo - --out {tmp_path}/out.ndjson {closed}"
    given = b"" if closed.startswith("<") else b"1\n2\n"
    shell = subprocess.Popen(
        ["sh", "-c", command],
        env={**os.environ, "FOREBAY_URL": basin.url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    code, _, err = finish(shell, given)
    assert code == (1 if ">&-" in closed.replace("2>&-", "") else 0)
    assert len(basin.jobs) == (2 if given else 0)


def test_a_10_mb_line_on_standard_input_is_one_clear_line(basin):
    for flags in ([], ["--ndjson"], ["--one"]):
        code, out, err = finish(
            start(basin, "submit", "echo", "-", *flags, stdin=subprocess.PIPE),
            b'"' + b"x" * 10_000_000 + b'"',
        )
        # Many say it in the job's own line on standard output, and the counts on standard error.
        assert (
            code == 1
            and err.count(b"\n") == 1
            and b"8388608 bytes" in (out if flags == ["--ndjson"] else err)
        )
    assert not basin.jobs


SURROUNDINGS = [
    {"LANG": "C", "LC_ALL": "C"},
    {"PYTHONIOENCODING": "ascii"},
    {"COLUMNS": "1"},
    {"NO_COLOR": "1", "TERM": "dumb"},
    {"TZ": "Nowhere/Nothing"},
    {"HOME": ""},
]


@pytest.mark.parametrize("env", SURROUNDINGS, ids=str)
def test_any_locale_width_and_zone_will_do(basin, env):
    code, out, err = finish(
        start(basin, "submit", "echo", '"žluťoučký 🐎"', "--metadata", "š=č", "--json", env=env)
    )
    assert (code, err) == (0, b"")
    assert json.loads(out)["metadata"] == {"š": "č"}
    code, out, err = finish(start(basin, "submit", "ž", "oops-ž", env=env))
    assert code == 2 and err.count(b"\n") == 1
    assert finish(start(basin, "submit", "--help", env=env))[0] == 0
    assert finish(start(basin, "submit", "ž", "1", env=env))[0] == 0
    code, out, err = finish(start(basin, "jobs", "ls", env=env))
    assert (code, err) == (0, b"") and (b"\xc5\xbe" in out or b"\\u017e" in out or b"\\x" in out)


@pytest.mark.parametrize("wait", [[], ["--wait"]])
def test_interrupted_and_started_again_nothing_is_submitted_twice(basin, tmp_path, wait):
    lines = tmp_path / "in.ndjson"
    lines.write_text("".join(f"{n}\n" for n in range(400)))
    out = tmp_path / "out.ndjson"
    command = ("submit", "echo", f"@{lines}", "--rate", "60/s", "--out", str(out), *wait)
    process = start(basin, *command)
    until(lambda: len(basin.jobs) >= 40, WAIT_S, "the first lines")
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert (
        code == 130 and b"interrupted:" in err and b"submitted" in err and b"the same command goes on" in err
    )
    assert 40 <= len(basin.jobs) < 400
    code, told, _ = finish(start(basin, *command))
    assert code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(row["line"] for row in rows) == list(range(1, 401))
    assert len(basin.jobs) == 400


def test_an_interrupt_ends_a_command_that_waits_for_input_or_for_a_job(basin):
    basin.run_after_polls = 10**9
    for argv in (["submit", "echo", "-", "--ndjson"], ["submit", "echo", "1", "--wait"]):
        before = len(basin.requests)
        process = start(basin, *argv, stdin=subprocess.PIPE)
        if "--wait" in argv:
            until(lambda seen=before: len(basin.requests) >= seen + 2, WAIT_S, "the poll")
        else:
            process.stdin.write(b"1\n")
            process.stdin.flush()
            until(lambda seen=before: len(basin.requests) > seen, WAIT_S, "the first line")
        process.send_signal(signal.SIGINT)
        process.wait(WAIT_S)
        code, _, _ = finish(process)
        assert code == 130


def test_lines_are_sent_as_they_come(basin):
    process = start(basin, "submit", "echo", "-", "--ndjson", "--out", "-", stdin=subprocess.PIPE)
    for n in range(3):
        process.stdin.write(b"%d\n" % n)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["line"] == n + 1
    code, _, err = finish(process)
    assert code == 0 and b"3 submitted" in err


def test_a_command_starts_without_what_it_does_not_need():
    code = (
        "import sys; from forebay.cli.edge import run; run(['--help']);"
        "heavy = {'httpx', 'fastapi', 'msgspec', 'pydantic', 'rich', 'apsw', 'uvloop'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT_S, stdout=subprocess.DEVNULL)
