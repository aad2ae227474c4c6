"""Every command against a server that answers as the contract says: words, exit codes, JSON."""

import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from forebay.cli.explain import sentence
from forebay.cli.show import estimate, readable
from forebay.client.records import JobFacts
from tests.cli.calling import calls
from tests.client.basin import Basin


@pytest.fixture
def basin(monkeypatch):
    with Basin() as found:
        monkeypatch.setenv("FOREBAY_URL", found.url)
        found.letters = {
            f"dead-{n}": {"job_id": f"dead-{n}", "task": "echo", "attempt": 3, "error": {"code": "poison"}}
            for n in range(3)
        }
        for n, at in (("aa", "2026-01-01T00:00:00Z"), ("bb", "2026-01-02T00:00:00Z")):
            found.quarantine[n] = {"fingerprint": n, "task": "echo", "deaths": 3, "last_death_at": at}
        yield found


@pytest.fixture
def forebay(basin, capsys):
    """Return a function that runs a command and returns (exit code, out, err)."""
    return calls(capsys)


@pytest.fixture
def job_id(forebay):
    return json.loads(forebay("submit", "echo", '{"a": 1}', "--json")[1])["job_id"]


COMMANDS = [
    "submit echo 5",
    "submit echo 5 --wait",
    "submit echo @{lines} --wait",
    "jobs ls",
    "jobs show {job}",
    "jobs watch {job}",
    "jobs explain {job}",
    "jobs cancel {job}",
    "dead-letters ls",
    "dead-letters show dead-0",
    "dead-letters redrive dead-0 dead-1",
    "dead-letters redrive --all --rate 100/s",
    "dead-letters purge --all --yes",
    "dead-letters quarantine",
    "dead-letters release aa bb",
    "queues ls",
    "queues pause echo",
    "queues resume echo",
    "queues drain echo",
    "workers",
    "nodes",
    "nodes --costs",
    "tasks",
    "top --once",
    "size --peak 60/s --service 50ms --wait-max 200ms",
    "version",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("json_", [True, False])
def test_every_command_answers_and_with_json_is_one_json_document_or_one_per_job_of_many(
    forebay, job_id, tmp_path, command, json_
):
    lines = tmp_path / "in.ndjson"
    lines.write_text('1\n"two"\n\n{"three": 3}\n')
    argv = command.format(job=job_id, lines=lines).split()
    code, out, err = forebay(*argv, *(["--json"] if json_ else []))
    many = "@" in command
    assert code == 0 and ("3 submitted" in err if many else err == "")
    if json_:
        for document in out.splitlines() if many else [out]:
            json.loads(document)
    else:
        assert out.strip()


USAGE = [
    ("", "Usage"),
    ("jobs", "Usage"),
    ("nope", "No such command 'nope'"),
    ("--nope", "No such option"),
    ("submit", "Missing argument 'TASK'"),
    ("submit echo 1 --conc 3", "No such option: --conc"),
    ("submit echo 1 --concurrency 0", "from 1 to 200"),
    ("submit echo 1 --concurrency 1e6", "from 1 to 200"),
    ("submit echo 1 --priority high --priority low", "--priority is given twice"),
    ("submit echo 1 --priority urgent", "from 0 to 9"),
    ("submit echo 1 --rate fast", "--rate"),
    ("submit echo 1 --retry-for -1", "--retry-for"),
    ("submit echo 1 --metadata x", "NAME=VALUE"),
    ("submit echo hello", "'\"hello\"'"),
    ("submit echo NaN", "NaN"),
    ("submit echo @/no/such/file", "No such file"),
    ("submit echo @/tmp", "directory"),
    ("jobs ls --limit 0", "from 1 to 10000"),
    ("dead-letters redrive", "--all"),
    ("dead-letters redrive a --all", "not both"),
    ("dead-letters redrive a --cause poison", "not both"),
    ("dead-letters redrive --cause posion", "--cause: 'posion' is none of transient"),
    ("dead-letters purge --since yesterday --yes", "--since"),
    ("dead-letters edit a {", "{"),
    ("dead-letters purge --all", "--yes"),
    ("serve x --workers 0", "1 to 1024"),
    ("serve x --workers -1", "1 to 1024"),
    ("serve x --workers 1e6", "whole number"),
    ("serve x --workers abc", "whole number"),
    ("serve x --workers 1 --workers 2", "--workers is given twice"),
    ("serve x --port 70000", "65535"),
    ("serve x --host 0.0.0.0", "loopback"),
    ("jobs ls --url nonsense", "url"),
    ("jobs ls --url http://\u0301x", "url: not a URL"),
    ("serve x --data \udcff", "flag --data: data = '\\udcff': is not UTF-8"),
    ("jobs ls --task \udcff", "not UTF-8: \\udcff"),
    ("jobs show a\udcff", "not UTF-8: "),
    ("queues pause \udcff", "not UTF-8: "),
    ("dead-letters redrive \udcff", "not UTF-8: "),
    ("submit echo 1 --ttl abc", "--ttl: 'abc' is not a duration"),
    ("submit echo 1 --ttl 0", "--ttl: '0' is not more than 0"),
    ("submit echo 1 --run-at tomorrow", "--run-at: 'tomorrow' is not an RFC 3339 time"),
    ("submit echo 1 --run-at 2026-13-01T00:00:00Z", "--run-at"),
    ("submit echo 1 --deadline x", "--deadline: 'x' is not a duration"),
    ("submit echo 1 --deadline 2026-01-01", "--deadline: '2026-01-01' is not an RFC 3339 time"),
    ("submit echo", "PAYLOAD is missing; use - for standard input"),
    (
        "jobs ls --status bogus",
        "PENDING, PROCESSING, COMPLETED, FAILED, CANCELLED, EXPIRED, scheduled, queued",
    ),
    ("jobs ls --status queued,", "--status ''"),
]


@pytest.mark.parametrize(("line", "told"), USAGE)
def test_a_wrong_command_line_is_exit_code_2_and_names_what_is_wrong(forebay, line, told):
    code, out, err = forebay(*line.split())
    assert code == 2
    assert told in (out if told == "Usage" else err)
    assert told == "Usage" or err.count("\n") == 1


def test_help_shows_the_commands_in_groups(forebay):
    code, out, _ = forebay("--help")
    assert code == 0
    assert [out.index(name) for name in ("Serve:", "Send work:", "Look and steer:")]


def test_the_answer_no_is_exit_code_1(basin, forebay, job_id):
    assert forebay("jobs", "show", "none")[0] == 1
    assert forebay("jobs", "watch", job_id)[0] == 0
    code, out, err = forebay("jobs", "cancel", job_id, "--json")
    assert code == 1 and json.loads(out)[0]["error"]["code"] == "state_conflict"
    basin.outcome = lambda view: ("FAILED", None, {"code": "exception", "message": "bad \x1b[31m page"})
    code, out, err = forebay("submit", "echo", "1", "--wait")
    assert code == 1 and "exception" in err and "\x1b" not in err


def test_text_from_the_server_cannot_act_on_the_terminal(forebay):
    code, out, err = forebay("submit", "nope", "1")
    assert code == 1 and "\x1b" not in err and "\\x1b[31mnope" in err


def test_a_server_that_is_not_there_is_exit_code_3(forebay):
    for command in ("jobs ls", "submit echo 1", "queues pause echo", "submit echo 1 --out -"):
        code, out, err = forebay(*command.split(), "--url", "http://127.0.0.1:9")
        assert code == 3 and "cannot reach http://127.0.0.1:9" in err and err.count("\n") <= 2


def test_a_result_is_printed_as_json(forebay):
    assert forebay("submit", "echo", '{"x": [1, "é🐎"]}', "--wait")[1] == '{"x": [1, "é🐎"]}\n'
    hostile = json.dumps("\x1b[31m\x9b\x7f\u202e\U000e0001é")
    out = forebay("submit", "echo", hostile, "--wait")[1]
    assert out.strip().isprintable() and "é" in out and json.loads(out) == json.loads(hostile)
    half = forebay("submit", "echo", '"\\ud800"', "--wait")[1]
    assert half == '"\\ud800"\n'


def test_a_result_is_escaped_where_the_stream_cannot_show_it(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    assert readable("é") == '"\\u00e9"'


def test_null_is_sent_only_when_it_is_written(basin, forebay):
    assert forebay("submit", "echo", "null")[0] == 0
    assert [view["_payload"] for view in basin.jobs.values()] == [None]


def test_watch_goes_on_showing_what_a_running_job_reports(basin, forebay, job_id):
    basin.reports = [{"share": n / 10, "message": f"step {n}"} for n in (1, 2, 3)]
    code, out, _ = forebay("jobs", "watch", job_id)
    assert code == 0
    told = [line.split("running  ")[1] for line in out.splitlines() if "running" in line]
    assert told == ["10% step 1", "20% step 2", "30% step 3"]
    waits = [path.split("wait=")[1] for path in basin.paths("GET") if "wait=" in path]
    assert all(float(wait) <= 1 for wait in waits[1:])  # a report does not end a poll: keep them short


def test_a_list_as_json_has_no_results(forebay, job_id):
    (row,) = json.loads(forebay("jobs", "ls", "--json")[1])
    assert row["job_id"] == job_id and "result" not in row


EVENTS = [
    {"event": "created", "at": "2026-01-01T00:00:00Z"},
    {"event": "failed", "at": "2026-01-01T00:00:01Z", "attempt": 1, "worker": "echo/0",
     "error": {"code": "exception", "message": "bad \x1b page"}},
]  # fmt: skip


def test_a_timeline_is_one_event_per_line(basin, forebay, job_id):
    basin.jobs[job_id]["timeline"] = basin.letters["dead-0"]["timeline"] = EVENTS
    for command in (("jobs", "show", job_id), ("dead-letters", "show", "dead-0")):
        out = forebay(*command)[1]
        assert out.endswith(
            "timeline\n"
            "  2026-01-01T00:00:00Z  created\n"
            "  2026-01-01T00:00:01Z  failed  attempt 1  on echo/0  exception: bad \\x1b page\n"
        )


def test_queues_say_whether_they_are_paused_or_draining(forebay, monkeypatch):
    assert forebay("queues", "ls")[1].splitlines()[1].endswith("open")
    forebay("queues", "pause", "echo")
    assert forebay("queues", "ls")[1].splitlines()[1].endswith("paused")
    rows = [{"task": "a", "draining": True}, {"task": "b", "paused": True, "draining": True}]
    monkeypatch.setattr("forebay.client.Client.queues", lambda self: rows)
    lines = forebay("queues", "ls")[1].splitlines()
    assert [line.split(maxsplit=1)[-1] for line in lines] == ["STATE", "draining", "paused, draining"]


def test_cron_entries_say_when_they_run_next_and_why_one_was_skipped(forebay, monkeypatch):
    rows = [
        {
            "cron": "a",
            "task": "t",
            "schedule": "every 60 s",
            "next_run_at": "2027-01-15T08:10:00Z",
            "skipped": "new",
        },
        {
            "cron": "b",
            "task": "t",
            "schedule": "0 3 * * *",
            "paused": True,
            "next_run_at": None,
            "skipped": "overlap",
        },
    ]
    monkeypatch.setattr("forebay.client.Client.crons", lambda self: rows)
    _, first, second = forebay("crons", "ls")[1].splitlines()
    assert "2027-01-15T08:10:00Z" in first and "new" not in first
    assert "paused" in second and second.endswith("overlap")
    assert json.loads(forebay("crons", "ls", "--json")[1]) == rows
    monkeypatch.setattr("forebay.client.Client.crons", lambda self: [])
    assert forebay("crons", "ls")[:2] == (0, "none: the application has no @app.every\n")


def test_an_estimate_has_sensible_digits(forebay, job_id):
    basin_told = forebay("submit", "echo", "1")[1]
    assert "done in about 41 s (9 of 10 times within 63 s)" in basin_told
    assert estimate({"p50_s": 347.123, "p90_s": 5400.7}) == "about 6 minutes (9 of 10 times within 1.5 h)"
    assert estimate({}) == "about an unknown time (9 of 10 times within an unknown time)"
    assert estimate(None) is None


@pytest.mark.parametrize("command", ["serve", "submit", "jobs ls", "dead-letters ls"])
def test_no_option_shows_the_name_of_a_type(forebay, command):
    out = forebay(*command.split(), "--help")[1]
    assert not [word for word in ("TEXT", "INTEGER", "typing", "str |") if word in out]


def test_why_a_job_waits_is_one_sentence(basin, forebay, job_id):
    assert "at place 12 in line behind 1 running on 1 worker" in forebay("jobs", "explain", job_id)[1]
    forebay("queues", "pause", "echo")
    assert "because the queue of echo is paused" in forebay("jobs", "explain", job_id)[1]
    forebay("jobs", "cancel", job_id)
    assert "was cancelled" in forebay("jobs", "explain", job_id)[1]


def test_purge_asks_with_the_count_and_removes_nothing_without_a_yes(basin, forebay):
    code, _, err = forebay("dead-letters", "purge", "--all")
    assert code == 2 and "3 dead letters" in err and len(basin.letters) == 3
    assert forebay("dead-letters", "purge", "--all", "--yes")[1] == "3 removed\n"
    assert not basin.letters


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        (("--cause", "poison"), ["dead-1", "dead-2"]),
        (("--since", "1h"), ["dead-0", "dead-1"]),
        (("--since", "2001-01-01T00:00:00Z"), []),
        (("--cause", "transient", "--since", "1h"), ["dead-0", "dead-1"]),
        (("--cause", "resource", "--task", "echo"), ["dead-0", "dead-1", "dead-2"]),
    ],
)
def test_a_purge_of_many_takes_those_of_a_cause_and_a_time(basin, forebay, flags, left):
    now = datetime.now(UTC)
    for n, cause in enumerate(("poison", "transient", "transient")):
        ended = now - timedelta(hours=0 if n == 2 else 9)
        basin.letters[f"dead-{n}"] |= {
            "cause": cause,
            "finished_at": ended.isoformat().replace("+00:00", "Z"),
        }
    code, out, err = forebay("dead-letters", "purge", "--yes", *flags)
    assert (code, err) == (0, "") and out == f"{3 - len(left)} removed\n"
    assert sorted(basin.letters) == left


def test_the_last_to_kill_comes_first_and_a_release_is_told_for_each(basin, forebay):
    out = forebay("dead-letters", "quarantine")[1]
    assert out.index("bb ") < out.index("aa "), out
    code, out, err = forebay("dead-letters", "release", "aa", "cc")
    assert (code, out) == (1, "1 released, 1 refused\n") and err == "forebay: cc: no such input\n"
    assert list(basin.quarantine) == ["bb"]
    document = json.loads(forebay("dead-letters", "release", "bb", "--json")[1])
    assert document["items"][0]["fingerprint"] == "bb" and document["count"] == 1
    assert forebay("dead-letters", "quarantine")[1] == "none\n"


def test_a_redrive_is_forced_when_that_is_said(basin, forebay):
    forebay("dead-letters", "redrive", "dead-0", "--force")
    forebay("dead-letters", "redrive", "dead-1")
    posts = [path.rpartition("/")[2] for path in basin.paths("POST", "/v1/dead-letters")]
    assert posts == ["redrive?force=1", "redrive"]


def test_redriven_letters_are_not_redriven_twice(basin, forebay):
    assert forebay("dead-letters", "redrive", "--all")[1] == "".join(
        f"dead-{n} redriven as new-dead-{n}\n" for n in (2, 1, 0)
    ) + ("3 redriven\n")
    assert forebay("dead-letters", "redrive", "--all")[1] == "0 redriven\n"
    reads = len(basin.paths("GET", "/v1/dead-letters"))
    code, out, _ = forebay("dead-letters", "redrive", "dead-1")
    assert (code, out) == (0, "dead-1 redriven before as new-dead-1\n0 redriven, 1 redriven before\n")
    assert len(basin.paths("GET", "/v1/dead-letters")) == reads  # the answer itself says that it was before


@pytest.mark.parametrize(
    ("workers", "told"),
    [
        ([], "because no worker serves ocr"),
        ([{"task": "other", "state": "ready"}], "because no worker serves ocr"),
        ([{"task": "ocr", "state": "crash_loop"}], "no worker of ocr is ready (they are crash_loop)"),
        (
            [{"task": "ocr", "state": "crash_loop"}, {"task": "ocr", "state": "parked"}],
            "no worker of ocr is ready (they are crash_loop)",
        ),
        ([{"task": "ocr", "state": "ready"}] * 2, "on 2 workers"),
        ([{"task": "(functions)", "state": "ready"}], "on 1 worker"),
    ],
)
def test_the_sentence_names_the_workers_state(workers, told):
    view = {"job_id": "a", "task": "ocr", "status": "PENDING", "state": "queued"}
    assert told in sentence(view, {"running": 1}, workers)


def test_the_sentence_says_nothing_of_workers_that_a_key_is_not_told_of():
    view = {"job_id": "a", "task": "ocr", "status": "PENDING", "state": "queued", "position": 3}
    assert sentence(view, {"running": None}, None) == "a (ocr) waits at place 3 in line."


def test_the_sentence_names_an_open_breaker_and_why_a_job_was_put_off():
    breaker = {
        "breaker": "ocr",
        "state": "open",
        "trips": 1,
        "retry_after_s": 12.0,
        "reason": "3 bad calls within 5 s",
    }
    view = {"job_id": "a", "task": "ocr", "status": "PENDING", "state": "queued"}
    told = sentence(view, {"breaker": breaker}, [{"task": "ocr", "state": "ready"}])
    assert "because the breaker of ocr is open (3 bad calls within 5 s); one job will try it in" in told
    closed = sentence(view, {"breaker": breaker | {"state": "closed"}}, [{"task": "ocr", "state": "ready"}])
    assert "breaker" not in closed
    late = view | {"state": "scheduled", "error": {"code": "upstream_busy", "message": "it answered 429"}}
    assert (
        sentence(late, {}, [])
        == "a (ocr) was put off (upstream_busy: it answered 429) and will be tried again."
    )


def test_the_sentence_names_the_breaker_inside_the_handler_that_put_a_job_off():
    error = {"code": "breaker_open", "message": "the breaker features is open"}
    view = {"job_id": "a", "task": "ocr", "status": "PENDING", "state": "scheduled", "error": error}

    def worker(state, *tasks):
        return {
            "task": "(functions)",
            "breakers": [{"breaker": "features", "state": state, "tasks": list(tasks)}],
        }

    told = sentence(view, {}, [worker("open", "ocr"), worker("closed", "ocr"), worker("open", "x")])
    assert told.endswith("tried again; the breaker features is open in 1 of its 2 workers.")
    assert sentence(view, {}, [worker("closed", "ocr"), {"task": "old"}]).endswith("will be tried again.")


def test_a_job_handle_says_that_its_result_is_degraded():
    assert JobFacts({"degraded": "fallback"}).degraded == "fallback"
    assert JobFacts({"degraded": None}).degraded is None


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("submit echo 5 --wait", "5 minutes"),
        ("jobs watch {job}", "60 s"),
        ("submit echo @{lines} --wait", "5 minutes"),
    ],
)
def test_who_waits_for_a_server_that_is_away_says_so_once_and_for_how_long(
    forebay, basin, job_id, tmp_path, command, left
):
    lines = tmp_path / "in.ndjson"
    lines.write_text("1\n")
    basin.run_after_polls = 1
    basin.scripts = [None, *["refuse-connection"] * 3]
    code, _, err = forebay(*command.format(job=job_id, lines=lines).split())
    told = [line for line in err.splitlines() if "waiting" in line]
    assert code == 0 and len(told) == 1, err
    assert told[0].startswith("forebay: cannot reach ") and told[0].endswith(f"; waiting up to {left} for it")
    assert not basin.scripts
