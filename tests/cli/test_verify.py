"""`forebay verify`: a file of targets, what is wrong in it, and verdicts on a server."""

import contextlib
import itertools
import json
import threading
import time

import pytest

from forebay.cli import verify
from forebay.cli.edge import run
from forebay.cli.scrape import samples_of
from forebay.client.wire import Answer
from forebay.errors import QueueFullError, UnreachableError

TARGET = '[[target]]\nname = "queue"\nmetric = "inference_queue_length"\nbelow = 250\n'


class Time:
    """A clock that nobody waits for."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    time = monotonic

    def sleep(self, seconds):
        self.now += seconds


class Server:
    """What the command sees of a server: its metrics, look by look, and answers to requests."""

    terms = None

    def __init__(self):
        self.looks = itertools.repeat('inference_queue_length{task="A"} 5\n')
        self.answers = itertools.repeat(None)

    def run(self, plan):
        plan.close()
        text = next(self.looks)
        if isinstance(text, Exception):
            raise text
        return Answer(200, {}, text.encode())

    def predict(self, task, payload):
        error = next(self.answers)
        if error is not None:
            raise error


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = Server()
    monkeypatch.setattr(verify, "time", Time())
    monkeypatch.setattr(verify, "connect", lambda *_: contextlib.nullcontext(found))
    return found


@pytest.fixture
def check(server, capsys, monkeypatch):
    """Return a function that verifies a file of this text: (exit code, its report)."""

    def call(text, *argv, span="3s"):
        every = "1s"
        if "probe" in text:  # in threads, and so in real time
            monkeypatch.setattr(verify, "time", time)
            span, every = "1s", "10ms"
        with open("targets.toml", "w") as file:
            file.write(f'for = "{span}"\nevery = "{every}"\n{text}')
        code = run(["verify", "http://x", "--targets", "targets.toml", "--json", *argv])
        return code, json.loads(capsys.readouterr().out)

    return call


def test_targets_that_hold_end_with_0_and_those_that_do_not_with_1(check):
    code, report = check(TARGET)
    assert code == 0 and report["good"] and report["looks"] == 4
    assert report["targets"][0]["value"] == 5.0
    code, report = check(TARGET.replace("250", "5"))
    assert code == 1 and not report["good"] and not report["targets"][0]["met"]


def test_m13_a_queue_that_once_was_250_is_found_in_five_minutes_of_looks(server, check):
    quiet, high = (f'inference_queue_length{{task="A"}} {depth}\n' for depth in (49, 250))
    server.looks = itertools.chain([quiet] * 150, [high], itertools.repeat(quiet))
    code, report = check(TARGET, span="5m")
    assert code == 1 and report["looks"] == 301 and report["targets"][0]["value"] == 250.0


OOM = (
    '[[target]]\nname = "oom"\nmetric = "inference_worker_restarts_total"\nlabels = { reason = "oom" }\n'
    'take = "increase"\nmost = 0\nabsent = 0\n'
)


def test_m15_one_worker_killed_for_its_memory_is_found_and_other_ends_are_not(server, check):
    other = 'inference_worker_restarts_total{reason="exit",task="A"} 4\n'
    server.looks = itertools.repeat(other)
    assert check(OOM)[0] == 0
    server.looks = itertools.chain(
        [other], itertools.repeat(other + other.replace("exit", "oom").replace(" 4", " 1"))
    )
    code, report = check(OOM)
    assert code == 1 and report["targets"][0]["value"] == 1.0


def test_m16_a_gpu_must_work_between_85_and_95_percent(server, check):
    text = (
        '[[target]]\nname = "gpu"\nmetric = "inference_gpu_utilization_ratio"\ntake = "mean"\n'
        "least = 0.85\nmost = 0.95\n"
    )
    for busy, code in ((0.84, 1), (0.85, 0), (0.95, 0), (0.96, 1)):
        server.looks = itertools.repeat(f'inference_gpu_utilization_ratio{{gpu="0"}} {busy}\n')
        assert check(text)[0] == code


def test_m31_the_peak_of_a_queue_never_above_200_is_judged_by_its_peak_and_not_by_the_looks(server, check):
    text = TARGET.replace("queue_length", "queue_length_peak").replace("below = 250", "most = 200")
    server.looks = itertools.repeat(
        'inference_queue_length_peak{task="A"} 201\ninference_queue_length{task="A"} 3\n'
    )
    assert check(text)[0] == 1


PROBE = '[[target]]\nname = "asked"\nprobe = "A"\npayload = 1\ntake = "p95"\nbelow = "200ms"\n'


def test_m32_95_of_100_requests_of_its_own_are_answered_in_time_or_it_is_said(server, check):
    server.answers = itertools.chain([QueueFullError("full")] * 5, itertools.repeat(None))
    code, report = check(PROBE)
    assert code == 0 and report["targets"][0]["value"] < 0.2
    server.answers = itertools.chain([QueueFullError("full")] * 6, itertools.repeat(None))
    code, report = check(PROBE)
    assert code == 1 and report["targets"][0]["value"] == "never"


def test_answers_that_do_not_come_are_not_waited_for_beyond_a_bound(server, check, monkeypatch):
    monkeypatch.setattr(verify, "ANSWERS_MAX_S", 0.01)
    over = threading.Event()
    server.predict = lambda task, payload: over.wait(30.0)
    try:
        code, report = check(PROBE)
        assert not over.is_set() and code == 1 and report["targets"][0]["value"] == "never"
    finally:
        over.set()


def test_what_was_not_seen_does_not_hold(check):
    code, report = check(TARGET.replace("queue_length", "queue_lenght"))
    assert code == 1 and report["targets"][0]["value"] is None


def test_a_look_that_was_not_answered_is_no_good_report(server, check):
    away = UnreachableError("away")
    server.looks = itertools.chain(
        ['inference_queue_length{task="A"} 5\n', away],
        itertools.repeat('inference_queue_length{task="A"} 5\n'),
    )
    code, report = check(TARGET)
    assert (code, report["missed"], report["good"], report["targets"][0]["met"]) == (1, 1, False, True)


def test_a_server_that_was_never_there_is_exit_code_3(server, capsys):
    server.looks = iter([UnreachableError("cannot reach http://x")])
    with open("targets.toml", "w") as file:
        file.write(TARGET)
    assert run(["verify", "http://x", "--targets", "targets.toml"]) == 3
    assert capsys.readouterr().err == "forebay: cannot reach http://x\n"


def test_an_earlier_report_stands_beside_the_new_one(check, server, capsys):
    assert check(TARGET, "--save", "before.json")[0] == 0
    server.looks = itertools.repeat('inference_queue_length{task="A"} 3\n')
    code, report = check(TARGET, "--before", "before.json")
    assert code == 0 and (report["targets"][0]["before"], report["targets"][0]["value"]) == (5.0, 3.0)
    assert run(["verify", "http://x", "--targets", "targets.toml", "--before", "before.json"]) == 0
    out = capsys.readouterr().out
    assert "BEFORE" in out and "1 of 1 targets hold; 4 looks" in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "[[target]]: wants 1 to 1,000 of them"),
        ("x = 1\n" + TARGET, "x: unknown"),
        ("for = [", "not TOML"),
        ('for = "soon"\n' + TARGET, "for: "),
        ('every = "0s"\n' + TARGET, "for, every: wants 1 to 100,000 looks"),
        ('for = "365d"\n' + TARGET, "for, every: wants 1 to 100,000 looks"),
        (TARGET + TARGET, "name: queue is there twice"),
        (TARGET.replace("below", "belo"), "target 1: belo: unknown"),
        (TARGET.replace("below = 250", ""), "target 1 (queue): wants least, most or below"),
        (TARGET.replace("250", "true"), "target 1 (queue): below: True is neither a number nor a time"),
        (TARGET.replace("250", "nan"), "below: nan is neither"),
        (TARGET.replace("250", '"fast"'), "target 1 (queue): below: "),
        (TARGET.replace("inference", "1"), "metric: '1_queue_length' is no name of a metric"),
        (TARGET + 'take = "p96"\n', "take: 'p96' is not one of"),
        (TARGET + 'take = "share"\n', 'of: goes with take = "share"'),
        (TARGET + 'probe = "A"\n', "wants either metric or probe"),
        (TARGET + "labels = 1\n", "labels: wants texts"),
        (TARGET + "labels = { task = 1 }\n", "labels: wants texts"),
        (TARGET.replace('name = "queue"\n', ""), "target 1: name: missing"),
        (TARGET.replace('"queue"', "5"), "target 1: name: 5 is not a text"),
        (PROBE.replace("p95", "increase"), "take: 'increase' is not one of"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_the_place_and_the_rule(server, capsys, text, told):
    with open("targets.toml", "w") as file:
        file.write(text)
    assert run(["verify", "http://x", "--targets", "targets.toml"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and told in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["nope.json", "targets.toml"])
def test_an_earlier_report_that_is_none_is_one_line(server, capsys, name):
    with open("targets.toml", "w") as file:
        file.write(TARGET)
    assert run(["verify", "http://x", "--targets", "targets.toml", "--before", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_is_not_an_exposition_is_told(capsys):
    from forebay.cli.show import Stop

    with pytest.raises(Stop, match="not the metrics of a Forebay server"):
        samples_of(b"<html>{ what")
