"""`forebay size`: its flags, its exit codes, arrivals from files, and what it says of wrong ones."""

import http.server
import json
import threading
import tomllib

import pytest

from forebay.cli.arrivals import LINE_MAX_B, count_of, read_arrivals, time_of
from forebay.cli.asked import Asked
from forebay.cli.sizing import answers
from forebay.cli.sizing_text import toml_of
from forebay.config import load_settings
from tests.cli.calling import calls


@pytest.fixture
def size(capsys):
    """Return a function that runs the command and returns (exit code, out, err)."""
    call = calls(capsys, "size")
    return lambda *argv: call(*" ".join(argv).split())


PLAN = ["--peak", "60/s", "--service", "50ms", "--wait-max", "200ms"]


def test_the_answer_says_both_readings_of_w_the_bound_and_the_replicas(size):
    code, out, err = size(*PLAN)
    assert (code, err) == (0, "")
    for text in (
        "12: 60/s x 200 ms (W is the wait alone)",
        "15: 60/s x (200 ms + 50 ms) (W is wait and service)",
        "16 items, 16 KB",
        "4: 75 % busy; 50.9 % wait",
        "needs 4 replicas; one alone drops 66.7 %",
    ):
        assert text in out


def test_the_settings_can_be_pasted(size, tmp_path):
    _, out, _ = size(*PLAN, "--toml")
    file = tmp_path / "forebay.toml"
    file.write_text(out)
    settings = load_settings({}, {}, tmp_path)
    assert (settings.workers, settings.queue_max) == (4, 20)
    assert set(tomllib.loads(out)) == {"workers", "queue_max", "queue_bytes_max"}
    assert "# @app.task(replicas=4, queue_max=20, queue_bytes_max=20000)" in out


def test_settings_of_several_tasks_are_one_file_and_the_arguments_of_each():
    lines = [["peak", "60/s"], ["peak", "600/s"]]
    several = [
        answers(Asked({name: value, "service": "50ms", "wait_max": "200ms"}))[0] for name, value in lines
    ]
    text = "\n".join(toml_of(several))
    assert tomllib.loads(text) == {"workers": max(one.document["settings"]["workers"] for one in several)}
    assert text.count("# @app.task(replicas=") == 2 and "queue_max = " not in text


def test_growth_says_what_was_assumed(size):
    code, out, _ = size("--in 1000/s --out 800/s --for 60s")
    assert code == 0 and "12,000 items, 12 MB" in out and "assumed" in out
    assert "empty after 15 s more, 75 s from the start" in out


def test_growth_into_a_bound_that_is_too_small_is_a_no(size):
    code, out, _ = size("--in 1000/s --out 800/s --for 60s --queue-max 1000 --memory 64MB")
    assert code == 1 and "queue_max too small" in out and "full after 5 s" in out
    assert size("--in 1000/s --out 800/s --for 60s --queue-max 12000 --memory 64MB")[0] == 0


def test_growth_of_what_is_never_served_is_for_ever_and_null_in_json(size):
    _, out, _ = size("--in 5/s --out 5/s --for 60s --json")
    assert json.loads(out)["items"] == 0 and json.loads(out)["empties_s"] == 0


def test_batches_are_a_fixed_cost_and_one_for_each_item(size):
    _, out, _ = size("--peak 300/s --service 20ms+2ms --batch-max 16 --wait-max 200ms --json")
    found = json.loads(out)
    assert found["service"]["rate_per_s"] == pytest.approx(307.69, abs=0.01)
    assert found["settings"]["batch_max"] == 16


def test_the_rule_of_thumb_for_cpus_is_told_beside_it(size):
    code, out, _ = size("--cpus 2")
    assert code == 0 and "5 for handlers that block (2 x 2 + 1), 2 for async ones" in out


WRONG = [
    ("", "say at least --peak or --arrivals"),
    ("--peak fast", "--peak: 'fast' is not a rate"),
    ("--peak 0/s", "--peak:"),
    ("--peak 60/s --wait-max 0", "--wait-max: '0' is not more than 0"),
    ("--peak 60/s --wait-max soon", "--wait-max:"),
    ("--peak 60/s --service 0s", "--service: '0s' is not more than 0"),
    ("--peak 60/s --service 20ms+", "--service:"),
    ("--peak 60/s --service 50ms --per-replica 4/s", "cannot both say how fast"),
    ("--peak 60/s --service 50ms --batch-max 16", "--batch-max needs --service as FIXED+EACH"),
    ("--peak 60/s --batch-max 16", "--batch-max needs --service"),
    ("--peak 60/s --replicas 0", "--replicas: '0' is not a whole number from 1"),
    ("--peak 60/s --replicas 1.5", "--replicas:"),
    ("--peak 60/s --quantile 1", "--quantile: '1' is not a number between 0 and 1"),
    ("--peak 60/s --quantile nan", "--quantile:"),
    ("--peak 60/s --item-size 0", "--item-size:"),
    ("--peak 60/s --arrivals x.csv", "cannot both say what the peak is"),
    ("--in 5/s --out 4/s", "growth needs --in, --out and --for"),
    ("--peak 60/s --toml --json", "cannot both be"),
    ("--task t", "--task needs --url"),
    ("--in 5/s --out 4/s --for 1m --replicas 3", "--replicas: not together with --in, --out and --for"),
    ("--url http://127.0.0.1:9 --lease 5s --ttl 1m", "--lease, --ttl: not together with --url"),
    ("--arrivals /nowhere.csv", "cannot read '/nowhere.csv'"),
    ("--attempts 3 --backoff 1s,,2s", "--backoff:"),
]


@pytest.mark.parametrize(("line", "told"), WRONG, ids=[line or "nothing" for line, _ in WRONG])
def test_a_wrong_flag_is_one_line_that_names_it(size, line, told):
    code, out, err = size(line)
    assert (code, out if "--json" not in line else "") == (2, "")
    assert told in err and err.count("\n") == 1


def test_a_server_that_is_not_there_is_3(size):
    assert size("--url http://127.0.0.1:9 --json")[0] == 3


# -- arrivals ----------------------------------------------------------------------------------------

STEADY = [f"{1_700_000_000 + i / 50:.2f}" for i in range(2_000)]  # 50 a second for 40 s
FORMS = {
    "one column": "\n".join(STEADY),
    "a header": "timestamp,path\n" + "\n".join(f'{at},"/a,b"' for at in STEADY),
    "milliseconds": "\n".join(str(int(float(at) * 1000)) for at in STEADY),
    "NDJSON": "\n".join(json.dumps({"path": "/", "ts": float(at)}) for at in STEADY),
    "NDJSON of texts": "\n".join(
        json.dumps({"at": f"2026-03-01T09:00:{i / 50:06.3f}Z"}) for i in range(2_000)
    ),
    "counts": "count\n" + "50\n" * 40,
    "counts with times": "time;count\n" + "".join(f"{1_700_000_000 + i};50\n" for i in range(40)),
    "NDJSON of counts": '{"count": 50}\n' * 40,
    "a byte order mark and Windows line ends": "\ufeffcount\r\n" + "50\r\n" * 40,
}


@pytest.mark.parametrize("form", FORMS)
def test_arrivals_are_read_in_every_form(tmp_path, form):
    path = tmp_path / "arrivals"
    path.write_text(FORMS[form] + "\n\n", encoding="utf-8", newline="")
    found = read_arrivals(str(path))
    assert found.arrivals == 2_000
    assert found.peaks.p99_per_s == pytest.approx(50, abs=1) and found.mean_per_s == pytest.approx(
        50, rel=0.03
    )


def test_the_peak_of_a_file_is_its_p99_and_its_burst_is_told(size, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("count\n" + "60\n" * 300 + "400\n" + "60\n" * 300)
    code, out, _ = size(f"--arrivals {path} --wait-max 200ms --service 50ms --json")
    found = json.loads(out)
    assert code == 0 and found["peak_per_s"] == 60 and found["arrivals"]["max_per_s"] == 400
    assert found["arrivals"]["count"] == 600 * 60 + 400 and found["hpa"]["replicas_min"] == 4


BAD = {
    "1700000000\nsoon\n1700000001\n\nlater\n": [
        "line 2 'soon' is not a time",
        "line 5 'later' is not a time",
    ],
    "count\n5\n-1\n1e3\n": ["line 3 '-1' is not a count", "line 4 '1e3' is not a count"],
    "100\n90\n": ["line 2 is 10 s before the row above it; sort the file"],
    '{"ts": 1}\n{"when": 2}\n{"ts": true}\n{"ts": \n': [
        "line 2 has none of at, time",
        "line 3 True is not a time",
        "line 4",
    ],
    "time,count\n1,2\n3\n": ["line 3 has 1 columns"],
    "nan\n": ["line 1 'nan' is not a time"],
    "x" * (LINE_MAX_B + 1) + "\n1\n": [f"line 1 is longer than {LINE_MAX_B} bytes"],
    "1\n" + "x\n" * 9: ["line 2", "line 6", "and 4 more"],
    "": ["there are no rows"],
    "count\n": ["there are no rows"],
    "count\n0\n0\n": ["nothing ever came"],
}


@pytest.mark.parametrize("text", BAD, ids=[words[0] for words in BAD.values()])
def test_a_row_that_cannot_be_read_is_named_by_its_line(size, tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    code, out, err = size(f"--arrivals {path} --wait-max 1s")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert [word for word in BAD[text] if word not in err] == []


def test_bytes_that_are_no_text_are_a_bad_row(size, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"1\n\xff\xfe\n")
    code, _, err = size(f"--arrivals {path}")
    assert code == 2 and "line 2 is not UTF-8" in err


def test_rows_a_little_out_of_order_are_taken(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("100.5\n100.0\n100.9\n")
    assert read_arrivals(str(path)).arrivals == 3


def test_arrivals_come_over_http_too(size):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            good = self.path == "/a.csv"
            body = b"count\n" + b"50\n" * 40 if good else b"gone"
            self.send_response(200 if good else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        code, out, _ = size(f"--arrivals {url}/a.csv --json")
        assert code == 0 and json.loads(out)["peak_per_s"] == 50
        code, _, err = size(f"--arrivals {url}/b.csv")
        assert code == 3 and "Not Found" in err
        server.shutdown()


def test_times_of_every_unit_are_seconds():
    for value in (1_700_000_000, 1_700_000_000_000, 1_700_000_000_000_000, 1_700_000_000_000_000_000):
        assert time_of(value) == pytest.approx(1_700_000_000)
    assert (
        time_of("2026-03-01T10:00:00+01:00")
        == time_of("2026-03-01T09:00:00")
        == time_of("2026-03-01T09:00:00Z")
    )
    assert count_of(5.0) == count_of("5") == 5
