"""`forebay top`: one look as text, many looks, a server that goes away, and what a terminal gets."""

import io
import json

import pytest

from forebay.cli import top
from forebay.cli.edge import run
from forebay.cli.top import HOME, NO_SCREEN, SCREEN, picture
from forebay.errors import ForbiddenError, UnreachableError
from tests.client.basin import Basin

QUEUE = {
    "task": "Shout", "depth": 1200, "depth_peak": 1300, "running": 4, "oldest_age_s": 75.0, "dead": 2,
    "rates": {"arrivals_per_s": 60.0, "drain_per_s": 20.0, "capacity_per_s": 21.5},
    "watermarks": {"level": 0.012}, "eta": {"p90_s": 90.0}, "paused": True, "draining": False,
    "breaker": {"state": "open"},
}  # fmt: skip
WORKER = {"worker": "Shout/0", "state": "ready", "batch": ["a", "b"], "memory_bytes": 52_000_000, "restarts": 3,
          "last_crash": "SIGSEGV"}  # fmt: skip
NOTHING = {"queues": [], "workers": [], "streams": [], "alerts": []}


def cells(lines, first):
    """Return the cells of the row that begins with a word, by the names above them."""
    head = next(line for line in lines if line.startswith("TASK"))
    row = next(line for line in lines if line.startswith(first))
    return dict(zip(head.split(), row.split(), strict=False))


def test_a_look_shows_each_queue_with_what_comes_leaves_and_could_leave():
    lines = picture({**NOTHING, "queues": [QUEUE], "workers": [WORKER]}, "http://x", "12:00:00")
    assert lines[0] == "http://x  12:00:00  1,200 wait, 4 run; 1 of 1 workers are busy"
    told = cells(lines, "Shout ")
    assert (told["WAIT"], told["PEAK"], told["IN"], told["OUT"], told["CAN"]) == (
        "1,200", "1,300", "60/s", "20/s", "21.5/s",
    )  # fmt: skip
    assert "paused, breaker open" in "\n".join(lines)
    worker = next(line for line in lines if line.startswith("Shout/0"))
    assert worker.split() == ["Shout/0", "ready", "2", "52", "MB", "3", "SIGSEGV"]


def test_what_a_key_may_not_know_is_a_dash():
    hidden = {"task": "Shout", "depth": 3, "running": None, "rates": {}, "eta": None, "watermarks": None}
    told = cells(picture({**NOTHING, "queues": [hidden]}, "u", "t"), "Shout")
    assert (told["WAIT"], told["RUN"], told["IN"], told["FULL"], told["ETA"]) == ("3", "-", "-", "-", "-")


def test_more_rows_than_fit_are_counted(monkeypatch):
    monkeypatch.setattr(top, "ROWS_MAX", 2)
    queues = [{**QUEUE, "task": f"t{n}"} for n in range(5)]
    assert "and 3 more" in picture({**NOTHING, "queues": queues}, "u", "t")


@pytest.fixture
def basin(monkeypatch):
    with Basin() as found:
        monkeypatch.setenv("FOREBAY_URL", found.url)
        yield found


def test_once_prints_one_look_with_streams_and_alerts_safe_for_the_terminal(basin, capsys):
    assert run(["top", "--once"]) == 0
    out = capsys.readouterr().out
    assert "! critical: echo: more than 800" in out and "\x1b" not in out and "\\x1b[31m" in out
    assert "p/door" in out and "0.20% !" in out and "echo/0" in out


class Time:
    """A clock that nobody waits for."""

    now = 100.0
    strftime = staticmethod(lambda _form: "12:00:00")

    def monotonic(self):
        return self.now

    time = monotonic

    def sleep(self, seconds):
        self.now += seconds


def test_as_json_each_look_is_a_line_and_the_end_is_kept_to(basin, capsys, monkeypatch):
    monkeypatch.setattr(top, "time", Time())
    assert run(["top", "--json", "--every", "100ms", "--for", "250ms"]) == 0
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(looks) == 3
    assert all(look["queues"][0]["task"] == "echo" and look["alerts"] for look in looks)


def test_a_server_that_was_never_there_is_exit_code_3(capsys):
    assert run(["top", "--once", "--url", "http://127.0.0.1:9"]) == 3
    assert "cannot reach" in capsys.readouterr().err


class Client:
    """A server that answers so many times."""

    class terms:  # noqa: N801 - as the client has it
        url = "http://x"

    def __init__(self, looks):
        self.looks = looks

    def queues(self):
        if self.looks == 0:
            raise UnreachableError("cannot reach http://x")
        self.looks -= 1
        return [QUEUE]

    def workers(self):
        raise ForbiddenError("the key lacks the scope admin")

    streams = alerts = workers


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    """Let what is printed go to a terminal; in the test itself, as a fixture comes before pytest's own."""
    found = Terminal()
    monkeypatch.setattr("sys.stdout", found)
    return found


def naps(monkeypatch, most):
    """Let it look again at once, and end it as Ctrl-C does after so many looks."""
    left = [most]

    def sleep(_seconds):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(top.time, "sleep", sleep)


def test_on_a_terminal_it_draws_over_itself_and_gives_the_screen_back(monkeypatch):
    naps(monkeypatch, 2)
    terminal = on_terminal(monkeypatch)
    with top._screen(True):
        top._watch(Client(9), 1.0, ends_at=None, once=False, json_=False)
    text = terminal.getvalue()
    assert text.startswith(SCREEN) and text.endswith(NO_SCREEN) and text.count(HOME) == 3


def test_a_server_that_goes_away_is_said_beside_what_was_seen_last_and_asked_again(monkeypatch):
    naps(monkeypatch, 2)
    terminal = on_terminal(monkeypatch)
    top._watch(Client(1), 1.0, ends_at=None, once=False, json_=False)
    assert terminal.getvalue().count("cannot reach http://x; what is shown is old") == 2
    assert terminal.getvalue().count("Shout") == 3


@pytest.mark.parametrize("every", ["10ms", "2h", "soon"])
def test_a_pace_that_makes_no_sense_is_refused(every, capsys):
    assert run(["top", "--every", every]) == 2
    assert "--every" in capsys.readouterr().err
