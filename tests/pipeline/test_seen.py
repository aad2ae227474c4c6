"""What a pipeline shows of itself: over HTTP, to Prometheus, to a server beside it, in a line on a terminal."""

import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forebay.cli.edge import run as forebay
from forebay.errors import AppError, ConfigError, ForebayError, UnreachableError
from forebay.pipeline import Pipeline, Stage, command
from forebay.pipeline.board import Board
from forebay.pipeline.exposition import Exposition, of_board
from forebay.pipeline.live import Rates, lines_of
from forebay.pipeline.loading import load_pipeline, source_of_text
from forebay.pipeline.pages import Pages
from forebay.server.streams import StreamList
from tests.pipeline import parts
from tests.pipeline.parts import WAIT_MAX_S, Camera, frames
from tests.waiting import until

APP = """
import forebay
def brightness(image):
    if int(image.flat[0]) == 3:
        raise ValueError("three")
    return int(image.max())
pipeline = forebay.Pipeline(forebay.Stage(brightness), name="bright")
"""


@pytest.fixture
def report():
    return Pipeline(Stage(parts.fails_on_three, breaker=None), name="p").run(frames(10))


def asked(url, host=None):
    request = urllib.request.Request(url, headers={} if host is None else {"host": host})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_MAX_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_running_pipeline_answers_over_http_on_loopback():
    camera = Camera()
    running = Pipeline(Stage(parts.first_byte)).start(camera)
    pages = Pages(running.report, 0)
    try:
        camera.feed(1, 2, 3)
        until(lambda: running.report().served == 3, WAIT_MAX_S, "three are served")
        status, body = asked(f"{pages.url}/v1/streams")
        view = msgspec.convert(json.loads(body), StreamList)
        assert (status, view.items[0].stream, view.items[0].served) == (200, "cam", 3)
        assert asked(f"{pages.url}/healthz")[0] == asked(f"{pages.url}/readyz")[0] == 200
        assert asked(f"{pages.url}/elsewhere")[0] == 404
        assert asked(f"{pages.url}/v1/streams", host="evil.example")[0] == 421
        assert b'inference_stream_served_total{stream="cam"} 3.0' in asked(f"{pages.url}/metrics")[1]
        camera.end()
        assert running.wait(WAIT_MAX_S)
        assert asked(f"{pages.url}/readyz")[0] == 503
        with pytest.raises(UnreachableError, match="cannot listen on 127.0.0.1"):
            Pages(running.report, int(pages.url.rpartition(":")[2]))
    finally:
        pages.close()


def test_the_metrics_have_the_names_that_dashboards_know(report):
    text = Exposition(lambda: report).render().decode()
    found = {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    stream = ("stream", "stream-0")
    assert found["inference_dropped_total", (("reason", "failed"), stream)] == 1
    assert found["inference_drop_ratio", (stream,)] == 0.1
    names = {name for name, _ in found}
    assert {
        "inference_queue_length",
        "inference_queue_bytes",
        "inference_queue_capacity",
        "inference_stage_seconds",
        "inference_producer_wait_ratio",
        "inference_consumer_idle_ratio",
    } <= names


def test_a_server_shows_the_same_under_the_name_of_the_pipeline(report):
    families = of_board(report.items(), report.stage_items())
    found = {
        (one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples
    }
    pipeline = report.pipeline
    assert found["inference_dropped_total", (f"{pipeline}/stream-0", "failed")] == 1
    assert found["inference_queue_capacity", (f"{pipeline}/fails_on_three",)] == 64
    assert not list(of_board([], []))[0].samples


def test_what_is_shown_is_what_the_document_of_the_server_says(report):
    shown = {"items": report.items(), "stages": report.stage_items(), "next_cursor": None}
    view = msgspec.convert(json.loads(msgspec.json.encode(shown)), StreamList)
    assert set(report.items()[0]) == set(type(view.items[0]).__struct_fields__)
    assert set(report.stage_items()[0]) == set(type(view.stages[0]).__struct_fields__)


def test_a_board_shows_what_living_processes_posted_and_forgets_the_dead(report, tmp_path):
    board = Board(tmp_path)
    assert (list(board.streams()), list(board.stages())) == ([], [])
    board.post(report)
    assert [one["stream"] for one in board.streams()] == ["stream-0"]
    assert [one["stage"] for one in board.stages()] == ["fails_on_three"]
    dead = tmp_path / "streams" / "1-dead.json"
    dead.write_bytes(msgspec.json.encode({"pid": os.getpid(), "started": 1, "items": [{}], "stages": []}))
    (tmp_path / "streams" / "2-torn.json").write_text("{")
    assert len(board.streams()) == 1
    board.take_down("p")
    assert list((tmp_path / "streams").iterdir()) == []


def test_a_line_and_a_summary_say_what_happened(report):
    line = Rates().line(report)
    assert "dropped 1 (10.00%) ALERT" in line and "waiting fails_on_three 0/64" in line
    text = "\n".join(lines_of(report))
    assert "p: 10 sent, 9 served, 1 dropped (10.00%)" in text
    assert "stream stream-0: 10 sent, 9 served, 1 dropped (failed 1)" in text
    assert "last error ValueError: three" in text


@pytest.fixture
def app(tmp_path, monkeypatch):
    (tmp_path / "bright_app.py").write_text(APP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "bright_app.py"
    sys.modules.pop("bright_app", None)


def test_the_command_runs_a_pipeline_and_tells_every_frame(app, monkeypatch, capsys):
    monkeypatch.setattr(command, "source_of_text", lambda *_: frames(10))
    assert forebay(["stream", app, "--source", "clip.mp4"]) == 0
    assert "bright: 10 sent, 9 served, 1 dropped (10.00%)" in capsys.readouterr().out


def test_the_command_exits_with_1_when_more_was_dropped_than_it_may(app, monkeypatch, capsys):
    monkeypatch.setattr(command, "source_of_text", lambda *_: frames(10))
    assert forebay(["stream", app, "--source", "a", "--drop-max", "0.001", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["streams"][0]["dropped"] == {"failed": 1}
    assert forebay(["stream", app, "--source", "a", "--drop-max", "0.5"]) == 0


def test_a_live_pipeline_ends_at_a_signal_after_what_waits_and_is_on_the_board_meanwhile(
    app, monkeypatch, capsys, tmp_path
):
    camera, seen = Camera(), []
    monkeypatch.setattr(command, "source_of_text", lambda *_: camera)

    def watch():
        camera.feed(1, 2)
        board = Board(tmp_path / "store")
        until(
            lambda: [one for one in board.streams() if one["served"] == 2], WAIT_MAX_S, "it is on the board"
        )
        seen.extend(board.streams())
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert forebay(["stream", app, "--source", "cam", "--data", "store", "--port", "0"]) == 0
    watcher.join()
    told = capsys.readouterr()
    assert "2 sent, 2 served, 0 dropped" in told.out
    assert "/v1/streams http://127.0.0.1:" in told.err and "| in " in told.err
    assert (seen[0]["pipeline"], seen[0]["state"]) == ("bright", "running")
    assert list(Board(tmp_path / "store").streams()) == []


def test_a_run_ends_after_its_time(app, monkeypatch, capsys):
    camera = Camera()
    monkeypatch.setattr(command, "source_of_text", lambda *_: camera)
    assert forebay(["stream", app, "--source", "cam", "--for", "50ms", "--quiet"]) == 0
    assert camera.closed


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "--source is needed"),
        (["--source", "a", "--for", "soon"], 2, "--for: "),
        (["--source", "a", "--port", "http"], 2, "--port must be a whole number"),
        (["--source", "a", "--drop-max", "1%"], 2, "--drop-max must be a share"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(app, arguments, code, said, capsys):
    assert forebay(["stream", app, *arguments]) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "no forebay.Pipeline in it"),
        (
            "import forebay\nS = forebay.Stage(abs)\na = forebay.Pipeline(S)\nb = forebay.Pipeline(S)",
            "several pipelines",
        ),
        ("import forebay\nforebay.Pipeline()", "it has 1 to 32 stages"),
        ("1 /", "SyntaxError"),
    ],
)
def test_a_file_without_one_pipeline_is_one_line(tmp_path, monkeypatch, text, said):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "nothing_here", None)
    path = tmp_path / "nothing_here.py"
    path.write_text(text, encoding="utf-8")
    before = set(sys.modules)
    with pytest.raises(AppError, match=said) as told:
        load_pipeline(str(path))
    assert "\n" not in str(told.value)
    for name in set(sys.modules) - before:
        if name == "forebay_app":
            del sys.modules[name]


def test_a_source_may_have_the_name_of_its_stream_before_it(tmp_path):
    source = source_of_text("door=rtsp://127.0.0.1:9/live")
    assert source.live
    source.close()


def test_a_source_may_be_a_topic_or_what_others_push():
    topic = source_of_text("door=kafka://127.0.0.1:9/frames")
    assert (topic.stream, topic.live) == ("door", False)
    pushed = source_of_text("door=push://127.0.0.1:0")
    try:
        assert pushed.live and pushed.url.startswith("http://127.0.0.1:")
    finally:
        pushed.close()


def test_who_pushes_from_elsewhere_must_show_the_token_of_the_settings():
    with pytest.raises(
        ConfigError, match=r"push://0\.0\.0\.0:0 can be reached .* FOREBAY_PUSH_TOKEN"
    ) as told:
        source_of_text("push://0.0.0.0:0")
    assert "token=" not in str(told.value)
    pushed = source_of_text("push://0.0.0.0:0", "a token of the settings")
    try:
        url = f"http://127.0.0.1:{pushed.url.rpartition(':')[2]}/v1/streams/door"
        assert httpx.put(url, content=b"x").status_code == 401
        shown = {"authorization": "Bearer a token of the settings"}
        assert httpx.put(url, content=b"x", headers=shown).status_code != 401
    finally:
        pushed.close()


@pytest.mark.parametrize(
    "text",
    [
        "push://",
        "push://127.0.0.1",
        "push://127.0.0.1:x",
        "push://127.0.0.1:\N{ARABIC-INDIC DIGIT ONE}",
        "push://h:99999",
        "push://h:" + "9" * 5000,
        "kafka://h:1",
    ],
    ids=str.__len__,
)
def test_a_source_that_is_none_is_one_line(text):
    with pytest.raises(ForebayError) as told:
        source_of_text(text)
    assert "\n" not in str(told.value)
