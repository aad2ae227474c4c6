"""The mistakes of a first hour: each ends in one line that says what to do, and in the right exit code."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import forebay
from forebay import asgi
from forebay.client.faults import JobFailedError, said_of
from forebay.config import load_settings
from forebay.engines import open_engine
from forebay.errors import ConfigError
from forebay.node.describe import describe_app
from tests.cli.calling import calls

ROOT = Path(__file__).parents[2]
HEAD = "import forebay\n\napp = forebay.App()\n\n\n"


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """Return a function that runs a command in an empty directory and returns (exit code, out, err)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOREBAY_URL", raising=False)
    return calls(capsys)


def refusal(tmp_path, text, name="app.py"):
    (tmp_path / "app.py").write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(Exception) as told:  # noqa: PT011 - the text is what is looked at
        describe_app(str(tmp_path / name), env=dict(os.environ), timeout_s=60.0)
    assert "\n" not in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("decorator", ["task", "pipeline"])
def test_a_decorator_without_parentheses_is_told_to_have_them(tmp_path, decorator):
    told = refusal(tmp_path, f"@app.{decorator}\ndef echo(text: str) -> str:\n    return text\n")
    assert f"@app.{decorator} on echo: write @app.{decorator}(), with parentheses" in told


def test_an_argument_without_a_name_is_told_to_have_one(tmp_path):
    told = refusal(tmp_path, '@app.task("echo")\ndef echo(text: str) -> str:\n    return text\n')
    assert "each argument has its name, like name='echo'" in told


def test_a_type_without_a_schema_names_those_that_have_one(tmp_path):
    kind = "class Page:\n    def __init__(self, path): ...\n\n\n"
    told = refusal(tmp_path, f"{kind}@app.task()\ndef read(page: Page) -> str:\n    return ''\n")
    assert "task read: its input cannot be described" in told and "Page'> is not supported" in told
    assert "dataclass" in told and "hook" not in told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (".", "it is a directory"),
        ("app", "there is no such file (is it "),
        ("no-module", "there is no such file"),
    ],
)
def test_what_is_no_application_is_told_as_what_it_is(tmp_path, name, told):
    said = refusal(tmp_path, "", name)
    assert told in said and "importlib" not in said


def test_a_module_that_cannot_be_one_is_a_file_that_is_not_there(command):
    for name in (".", "..", "a b", "shout.txt/"):
        code, out, err = command("serve", name)
        assert (code, out) == (2, "") and err.count("\n") == 1 and "TypeError" not in err


def test_an_application_that_cannot_be_read_is_a_usage_error_of_every_command(command, tmp_path):
    (tmp_path / "clip.mp4").touch()
    for words in ("serve nope.py", "stream nope.py --source clip.mp4"):
        code, _, err = command(*words.split())
        assert code == 2 and "nope.py: there is no such file" in err


@pytest.mark.parametrize(
    ("broker", "told"),
    [
        ("mysql://x", "'mysql' is no engine here: sqlite:DIRECTORY, postgresql://…, redis://…"),
        ("localhost:6379", "'localhost' is no engine here"),
        ("redis", "'redis' alone is no URL"),
        ("postgresql", "'postgresql' alone is no URL"),
    ],
)
def test_a_broker_that_is_none_is_told_which_there_are(tmp_path, broker, told):
    settings = load_settings({"broker": broker, "data": str(tmp_path)}, env={}, cwd=tmp_path)
    with pytest.raises(ConfigError) as refused:
        asyncio.run(open_engine(settings, None))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"FOREBAY_WEBHOOK_SECRET": "abc"}, "FOREBAY_WEBHOOK_SECRET: webhook_secret: must begin with whsec_"),
        ({"FOREBAY_QUEUE_BYTES_MAX": "5"}, "must be from 1KiB to 1048576GiB"),
        ({"FOREBAY_QUEUE_MAX": "0"}, "must be from 1 to 100000000"),
    ],
)
def test_a_wrong_setting_names_its_rule_in_words_that_can_be_written(tmp_path, env, told):
    with pytest.raises(ConfigError) as refused:
        load_settings({}, env=env, cwd=tmp_path)
    assert told in str(refused.value)


def test_what_the_system_refuses_is_one_line_and_says_of_which_file(command, tmp_path):
    (tmp_path / "app.py").write_text(f"{HEAD}@app.task()\ndef echo(text: str) -> str:\n    return text\n")
    store = "s" * 300  # longer than the name of a file may be
    for words in (f"serve app.py --port 0 --data {store}", f"migrate --from sqlite:{store} --dry-run"):
        code, _, err = command(*words.split())
        assert code == 3, err
        assert "File name too long" in err and "sss" in err and err.count("\n") == 1


def test_nobody_listening_is_told_without_numbers_of_the_system(command):
    code, _, err = command("jobs", "ls", "--url", "http://127.0.0.1:9")
    assert (code, err) == (
        3,
        "forebay: cannot reach http://127.0.0.1:9: Connection refused: no server listens there\n",
    )


def test_tls_to_a_server_without_it_says_what_to_write(command):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                with caller:
                    caller.recv(1000)
                    caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        code, _, err = command("jobs", "ls", "--url", f"https://127.0.0.1:{listener.getsockname()[1]}")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert code == 3 and "it speaks no TLS there: the address begins with http://" in err


def test_an_address_with_a_path_is_told_to_be_too_long(command):
    from forebay.client.faults import fault_of
    from forebay.client.wire import Answer

    body = json.dumps({"detail": "no such address", "code": "not_found"}).encode()
    told = str(fault_of(Answer(404, {}, body), "http://127.0.0.1:8080/v1"))
    assert told == "no such address at http://127.0.0.1:8080/v1: the address of the server itself has no /v1"
    assert str(fault_of(Answer(404, {}, body), "http://127.0.0.1:8080")) == "no such address"


def test_the_kind_of_an_exception_is_told_where_its_words_say_little():
    error = {"code": "handler_failed", "type": "KeyError", "message": "'page'"}
    assert said_of(error) == "KeyError: 'page'"
    assert said_of({**error, "type": "Permanent", "message": "no such page"}) == "no such page"
    assert said_of({**error, "message": "KeyError"}) == "KeyError"
    assert (
        said_of({"code": "timeout", "type": None, "message": "ran longer than 1 s"}) == "ran longer than 1 s"
    )
    failed = JobFailedError({"job_id": "j", "status": "FAILED", "error": error})
    assert str(failed) == "j: KeyError: 'page'" and failed.message == "'page'"


def test_a_blob_that_has_no_such_id_is_a_usage_error_of_each_command(command):
    for words in ("blobs get nope", "blobs rm nope"):
        code, _, err = command(*words.split())
        assert code == 2 and "'nope': a blob is named by its id" in err


def test_what_was_said_is_not_said_again_in_brackets(command, monkeypatch):
    from forebay.cli import edge
    from forebay.errors import InvalidError

    rule = "must be at most 100, what the queue holds"
    told = InvalidError(f"jobs {rule}", errors=(("jobs", rule), ("size", "must be a size")))
    assert edge._told(told) == f"jobs {rule} (size: must be a size)"


def test_text_on_both_streams_stands_in_the_order_it_was_said():
    done = subprocess.run(
        [sys.executable, "-m", "forebay", "keys", "new", "--tenant", "a"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
    )  # fmt: skip
    said = done.stdout.splitlines()
    assert "the key" in said[0] and said[1].startswith("fb_")
    assert "its line" in said[2] and said[3].startswith('"sha256:')


def test_the_help_begins_with_what_it_is_and_goes_from_serving_to_planning(command):
    out = command("--help")[1]
    places = [
        out.index(word) for word in ("The basin", "Exit codes", "Serve:", "Send work:", "Look", "Plan:")
    ]
    assert places == sorted(places)


def test_the_help_shows_arguments_as_they_are_written(command):
    out = command("serve", "--help")[1]
    assert "[OPTIONS] FILE_OR_MODULE[:app]\n" in out and "<str>" not in out and "{" not in out


def test_replicas_that_are_exactly_full_are_one_too_few(command):
    out = json.loads(command("size", "--peak", "60/s", "--service", "50", "--json")[1])
    assert out["replicas"]["to_keep_up"] == 3000 and out["replicas"]["needed"] == 3001
    assert "for ever" not in command("size", "--peak", "60/s", "--service", "50")[1]


def test_an_asgi_server_without_the_lifespan_is_answered_what_is_missing():
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(asgi.Application()({"type": "http"}, None, send))
    start, body = sent
    assert start["status"] == 503 and "lifespan" in json.loads(body["body"])["detail"]


@pytest.mark.parametrize("kind", [forebay.Client, forebay.AsyncClient])
def test_a_client_without_a_url_goes_where_the_settings_say(kind, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOREBAY_URL", raising=False)
    assert kind().transport.place.url == "http://127.0.0.1:8080"
    monkeypatch.setenv("FOREBAY_URL", "http://127.0.0.1:8181")
    monkeypatch.setenv("FOREBAY_API_KEY", "a-key-of-the-settings")
    place = kind().transport.place
    assert place.url == "http://127.0.0.1:8181"
    assert place.headers["authorization"] == "Bearer a-key-of-the-settings"
    assert kind(api_key="mine").transport.place.headers["authorization"] == "Bearer mine"
    assert "authorization" not in kind("http://127.0.0.1:9").transport.place.headers


@pytest.mark.parametrize(("digits", "told"), [("4 0", "espeak-ng is missing: apt-get"), ("a", "only digits")])
def test_an_example_that_lacks_a_program_or_gets_nonsense_says_so_in_one_line(tmp_path, digits, told):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "speech.py"), digits, str(tmp_path / "out.wav")],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and told in done.stderr and done.stderr.count("\n") == 1


PIPELINE = "import forebay\n\npipeline = forebay.Pipeline(forebay.Stage(len))\n"


def test_a_camera_that_cannot_be_reached_is_told_each_second_and_at_the_end(command, tmp_path, monkeypatch):
    def refused():
        raise ConnectionRefusedError("Connection refused")

    (tmp_path / "pipe.py").write_text(PIPELINE, encoding="utf-8")
    camera = forebay.sources.reconnecting(refused, stream="door")
    monkeypatch.setattr("forebay.pipeline.command.source_of_text", lambda *_: camera)
    code, out, err = command("stream", "pipe.py", "--source", "x", "--for", "1.2s")
    *live, last = err.splitlines()
    assert code == 0 and "0 sent" in out
    assert any("| door waiting: Connection refused" in line for line in live), err
    assert last == "forebay: door waiting: Connection refused"


def test_a_source_that_others_push_to_says_where_it_listens(command, tmp_path):
    (tmp_path / "pipe.py").write_text(PIPELINE, encoding="utf-8")
    code, _, err = command("stream", "pipe.py", "--source", "push://127.0.0.1:0", "--for", "0.1s", "--quiet")
    assert code == 0 and re.search(r"^forebay: listening: frames at http://127\.0\.0\.1:[1-9]\d*", err, re.M)


def test_the_json_of_a_server_is_told_to_be_lines(command):
    for name in ("serve", "api", "work"):
        assert "one object a line" in command(name, "--help")[1]
    assert "Print one JSON document" in command("jobs", "ls", "--help")[1]


def test_a_dependency_that_is_gone_is_named_with_what_brings_it_back(tmp_path):
    without = "import sys; sys.modules['uvloop'] = None; from forebay.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", without, "serve", "app.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
    assert "uvloop is not installed" in done.stderr and "pip install --force-reinstall forebay" in done.stderr
