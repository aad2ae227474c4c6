"""`forebay submit` of many: what is one and what is many, the results file, pace, and going on."""

import asyncio
import json
import os

import pytest

from forebay.cli.edge import run
from forebay.cli.many import AHEAD_BYTES_MAX, Reader
from forebay.cli.reading import DOCUMENT_MAX_B, Row
from forebay.client import AsyncClient
from forebay.client.bulk import Line
from forebay.client.carry import FRESH_BYTES_MAX, Carrier
from tests.client.basin import Basin


@pytest.fixture
def basin(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with Basin() as found:
        monkeypatch.setenv("FOREBAY_URL", found.url)
        yield found


def write(name, *rows):
    with open(name, "w") as file:
        file.writelines(row if row.endswith("\n") else row + "\n" for row in rows)
    return f"@{name}"


def records(name="out.ndjson"):
    with open(name) as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize(
    ("name", "text", "flags", "payloads"),
    [
        ("a.json", '{"x":\n 1}\n', [], [{"x": 1}]),
        ("a.json", '{"x": 1}\n', [], [{"x": 1}]),
        ("a.json", "1\n2\n3", [], [1, 2, 3]),
        ("a.json", "1\n\n", [], [1]),
        ("a.json", '"1"', ["--ndjson"], ["1"]),
        ("a.jsonl", "1\n", [], [1]),
        ("a.ndjson", "\ufeff1\r\n\r\n2\r\n", [], [1, 2]),
        ("a.json", "[\n1,\n2]", ["--one"], [[1, 2]]),
        ("a.json", "9007199254740993", [], [9007199254740993]),
    ],
)
def test_what_is_one_job_and_what_is_many(basin, name, text, flags, payloads):
    with open(name, "w", newline="") as file:
        file.write(text)
    assert run(["submit", "echo", f"@{name}", *flags]) == 0
    taken = [view["_payload"] for view in basin.jobs.values()]
    assert sorted(taken, key=repr) == payloads  # in any order: calls go side by side


def test_lines_under_one_ordering_key_are_taken_in_their_order_whatever_is_refused(basin):
    basin.refuse_lines = 2
    given = write("in.ndjson", *map(str, range(9)))
    assert run(["submit", "echo", given, "--ordering-key", "door", "--concurrency", "8"]) == 0
    assert [view["_payload"] for view in basin.jobs.values()] == list(range(9))


@pytest.mark.parametrize("text", ["", "\n\n", '{"x": 1}\n{"y"', "{'x': 1}", "[" * 100_000, "\xff", "NaN"])
def test_a_document_that_is_not_json_is_one_line_and_submits_nothing(basin, capsys, text):
    with open("a.json", "wb") as file:
        file.write(text.encode("latin-1"))
    many = text.startswith('{"x": 1}')
    assert run(["submit", "echo", "@a.json"]) == (1 if many else 2)
    assert capsys.readouterr().err.count("\n") == 1
    assert len(basin.jobs) == (1 if many else 0)


def test_each_line_stands_alone_and_is_recorded(basin, capsys):
    given = write("in.ndjson", "1", "{oops", "3", "x" * (DOCUMENT_MAX_B + 10), "5")
    assert run(["submit", "echo", given, "--wait", "--out", "out.ndjson"]) == 1
    rows = {row["line"]: row for row in records()}
    assert sorted(rows) == [1, 2, 3, 4, 5]
    assert [rows[n]["result"] for n in (1, 3, 5)] == [1, 3, 5]
    assert rows[2]["status"] == "REFUSED" and "not JSON" in rows[2]["error"]["message"]
    assert "longer than" in rows[4]["error"]["message"]
    told = capsys.readouterr()
    assert "3 submitted, 2 refused, 3 completed, 0 failed" in told.out


@pytest.mark.parametrize(
    "text", ["1\n2\n", '{"x":\n1}', '{"x": 1}\n{"y"', "", '{"x": 1}\n{"y": 1}\n', "\xff\0"]
)
def test_its_input_is_closed_again_whatever_was_in_it(basin, text):
    with open("in.txt", "w", encoding="latin-1") as file:
        file.write(text)
    run(["submit", "echo", "@in.txt"])
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert os.path.realpath("in.txt") not in opened


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--budget", "a b"], "--budget: a name is"),
        (["--budget", "ci", "--rate", "1e9/s"], "--budget: '1e9/s' is not from one a day"),
        (["--budget", "ci=0/s"], "--budget: '0/s' is not a rate"),
        (["--announce", "0"], "announce"),
    ],
)
def test_a_wrong_budget_or_announcement_is_one_line_and_submits_nothing(basin, capsys, argv, said):
    assert run(["submit", "echo", "1", *argv]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert basin.requests == []


def test_a_line_without_end_is_told_while_it_goes_on(basin, capsys):
    """What writes it, here an endless device, may never come to a line end."""
    assert run(["submit", "echo", "@/dev/zero"]) == 1
    assert "longer than" in capsys.readouterr().err and not basin.jobs


def test_refusals_for_pressure_are_waited_out(basin, capsys):
    basin.refuse_lines = 250
    given = write("in.ndjson", *[str(n) for n in range(300)])
    assert run(["submit", "echo", given, "--json", "--out", "out.ndjson"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["submitted"] == 300 and told["held_back"] >= 1
    assert len(basin.jobs) == 300


def test_a_second_run_of_the_same_command_submits_nothing(basin, capsys):
    given = write("in.ndjson", "1", "2", "2")
    command = ["submit", "echo", given, "--wait", "--out", "out.ndjson"]
    assert run(command) == 0
    posts = len(basin.paths("POST"))
    assert run(command) == 0
    assert "0 submitted, 3 done before" in capsys.readouterr().out
    assert len(basin.paths("POST")) == posts and len(records()) == 3


@pytest.mark.parametrize("wait", [["--wait"], []])
def test_a_second_run_still_says_no_when_a_line_failed_in_the_first(basin, capsys, wait):
    if wait:
        basin.outcome = lambda view: (
            ("FAILED", None, {"code": "exception", "message": "bad"})
            if view["_payload"] == 2
            else ("COMPLETED", view["_payload"], None)
        )
    given = write("in.ndjson", "1", "2" if wait else "{oops", "3")
    command = ["submit", "echo", given, *wait, "--out", "out.ndjson"]
    assert run(command) == 1
    posts = len(basin.paths("POST"))
    capsys.readouterr()
    assert run(command) == 1
    assert "0 submitted, 2 done before, 1 failed before" in capsys.readouterr().out
    assert run([*command, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["done_before"], told["failed_before"]) == (2, 1)
    assert len(basin.paths("POST")) == posts and len(records()) == 3


def test_without_out_every_job_of_many_is_one_line(basin, capsys):
    basin.outcome = lambda view: (
        ("FAILED", None, {"code": "exception", "message": "bad \x1b page"})
        if view["_payload"] == 2
        else ("COMPLETED", view["_payload"], None)
    )
    given = write("in.ndjson", "1", "2", "{oops")
    assert run(["submit", "echo", given, "--wait"]) == 1
    told = capsys.readouterr()
    assert sorted(told.out.splitlines()) == [
        "-  REFUSED  invalid: line 3: not JSON: expecting property name enclosed in double quotes "
        "at character 2",
        "job-000000  COMPLETED",
        "job-000001  FAILED  line 2: exception: bad \\x1b page",
    ]
    assert told.err.startswith("2 submitted, 1 refused, 1 completed, 1 failed in")
    assert run(["submit", "echo", given, "--wait", "--json"]) == 1
    rows = {row["line"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert {n: row["status"] for n, row in rows.items()} == {1: "COMPLETED", 2: "FAILED", 3: "REFUSED"}
    assert rows[1]["result"] == 1 and rows[2]["job_id"] == "job-000001"


def test_many_that_are_not_waited_for_have_their_ids_shown(basin, capsys):
    assert run(["submit", "echo", write("in.ndjson", "1", "2")]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["job-000000  PENDING", "job-000001  PENDING"]


def test_without_out_the_same_lines_are_the_same_jobs_and_another_key_makes_new_ones(basin):
    given = write("in.ndjson", "1", "2", "2")
    assert run(["submit", "echo", given]) == run(["submit", "echo", given]) == 0
    assert len(basin.jobs) == 3
    assert run(["submit", "echo", given, "--idempotency-key", "again"]) == 0
    assert len(basin.jobs) == 6


def test_a_run_whose_last_record_was_cut_off_goes_on(basin):
    given = write("in.ndjson", *[str(n) for n in range(5)])
    command = ["submit", "echo", given, "--wait", "--out", "out.ndjson"]
    assert run(command) == 0
    with open("out.ndjson", "r+b") as file:
        file.truncate(len(b"".join(file.readlines()[:3])) + 7)
    assert run(command) == 0
    assert sorted(row["line"] for row in records()) == [1, 2, 3, 4, 5]
    assert len(basin.jobs) == 5


def test_a_file_of_somebody_else_is_never_written_to(basin, capsys):
    given = write("in.ndjson", "1")
    write("out.ndjson", "precious")
    assert run(["submit", "echo", given, "--out", "out.ndjson"]) == 2
    with open("out.ndjson") as file:
        assert file.read() == "precious\n"
    assert run(["submit", "echo", given, "--out", "mine.ndjson"]) == 0
    assert run(["submit", "other", given, "--out", "mine.ndjson"]) == 2
    assert len(basin.jobs) == 1


@pytest.mark.parametrize("out", [".", "no/such/dir/x", "loop", "a\0b"])
def test_a_results_file_that_cannot_be_written_is_named_before_anything_is_sent(basin, capsys, out):
    os.symlink("loop", "loop")
    assert run(["submit", "echo", write("in.ndjson", "1"), "--out", out]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert basin.requests == []


ODD_NAMES = ["a b.ndjson", "a'\"b.ndjson", "a\nb.ndjson", "-a.ndjson", os.fsdecode(b"\xff.ndjson")]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_any_file_name_is_read(basin, name):
    assert run(["submit", "echo", write(name, "1", "2"), "--out", "out.ndjson"]) == 0
    assert len(basin.jobs) == 2


def test_a_full_disk_under_the_results_is_exit_code_1(basin, capsys):
    assert run(["submit", "echo", write("in.ndjson", "1", "2"), "--out", "/dev/full"]) == 1
    assert "No space left" in capsys.readouterr().err


def test_a_rate_is_kept(basin):
    assert run(["submit", "echo", write("in.ndjson", *[str(n) for n in range(60)]), "--rate", "100/s"]) == 0
    times = [at for method, _, at in basin.requests if method == "POST"]
    assert times[-1] - times[0] >= 0.5


def test_what_is_read_ahead_of_a_slow_server_is_bounded_in_bytes():
    """Lines may be of 8 MiB, and 512 of them are a machine's memory."""
    read = []

    def rows():
        for number in range(1, 65):
            read.append(number)
            yield Row(number, bytes(1 << 20))

    async def run():
        reader = Reader(rows())
        async with asyncio.timeout(30):
            while reader._held_b < AHEAD_BYTES_MAX:
                await asyncio.sleep(0.002)
            assert len(read) <= 18
            taken = []
            while some := await reader.take(5):
                taken += [row.number for row in some]
        assert taken == list(range(1, 65))

    asyncio.run(run())


def test_lines_that_were_not_sent_yet_are_bounded_in_bytes(basin):
    basin.accept_delay_s = 60.0
    taken = []

    async def source(count):
        taken.append(count)
        return [Line(len(taken), bytes(1 << 20))]

    async def run():
        async with asyncio.timeout(30), AsyncClient(basin.url) as client:
            carrier = Carrier(client.transport, client.terms, rate_per_s=None, concurrency=2, wait=False)
            reading = asyncio.ensure_future(anext(carrier.run(source)))
            while carrier._fresh_b < FRESH_BYTES_MAX:
                await asyncio.sleep(0.002)
            assert len(taken) <= 16 + 2 + 1
            reading.cancel()
            await asyncio.wait({reading})

    asyncio.run(run())
