"""Log lines: one event is one line, whatever is in it."""

import io
import json
import os
import pty
import termios
import time

import pytest

from forebay.observe.logs import REPEAT_S, Seldom, make_log
from tests.pipes import fill

NASTY = 'a\r\nb\x1b[31m\u202e"q" %s {} ${jndi:x} <script>\x00\ud800'


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "form"),
    [(io.StringIO, "json"), (io.StringIO, "auto"), (Terminal, "auto"), (io.StringIO, "text")],
)
def test_an_event_is_one_printable_line(stream, form):
    out = stream()
    log = make_log(now=lambda: 1.5, stream=out, form=form)
    log.info(NASTY, **{"field": NASTY, "number": 3, "list": [NASTY], "none": None})
    try:
        raise ValueError(NASTY)
    except ValueError:
        log.exception("broke")
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert "1970-01-01T00:00:01.500Z" in lines[0]


def test_json_lines_carry_their_fields():
    out = io.StringIO()
    log = make_log(now=lambda: 0.0, stream=out, form="json", level="warning")
    log.info("unheard")
    log.warning("heard", task="a", huge="x" * 10_000)
    record = json.loads(out.getvalue())
    assert (record["event"], record["level"], record["task"]) == ("heard", "warning", "a")
    assert len(record["huge"]) == 4_000


def test_text_lines_read_as_key_and_value():
    out = io.StringIO()
    make_log(now=lambda: 0.0, stream=out, form="text").info("started", port=8080, host="a b", task="x")
    assert out.getvalue().endswith('info    started port=8080 host="a b" task=x\n')


def test_a_stream_that_is_gone_takes_nobody_with_it():
    out = io.StringIO()
    log = make_log(now=lambda: 0.0, stream=out, form="json")
    out.close()
    log.info("nobody hears")


@pytest.mark.timed
def test_a_pipe_that_nobody_reads_stops_nobody_and_the_loss_is_said():
    reader, writer = os.pipe()
    out, at = os.fdopen(writer, "w"), [100.0]
    log = make_log(now=lambda: at[0], stream=out, form="json")
    log.info("first")
    fill(writer)
    began = time.monotonic()
    for _ in range(1_000):
        log.info("lost")
    assert time.monotonic() - began < 2.0
    assert os.get_blocking(writer), "whoever shares the pipe finds it as it was"
    os.set_blocking(reader, False)
    while len(os.read(reader, 1 << 20)) == 1 << 20:
        pass
    log.info("again")
    lines = os.read(reader, 1 << 20).decode().splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    assert [(one["event"], one.get("lines")) for one in records] == [
        ("log_lines_lost", 1_000),
        ("again", None),
    ]
    assert records[0]["level"] == "warning" and records[0]["at"]
    out.close()
    os.close(reader)


def test_a_line_that_was_torn_does_not_spoil_the_next_one():
    reader, writer = os.pipe()
    out = os.fdopen(writer, "w")
    log = make_log(now=lambda: 100.0, stream=out, form="json")
    for _ in range(6):  # three pages each: the last one that the pipe takes does not fit
        log.info("long", a="x" * 3_900, b="y" * 3_900, c="z" * 3_900)
    text = os.read(reader, 1 << 20)
    assert not text.endswith(b"\n"), "no line was torn: the test shows nothing"
    log.info("next")
    end, told = os.read(reader, 1 << 20).splitlines()
    assert (end, json.loads(told)["event"]) == (b"", "next")
    out.close()
    os.close(reader)


@pytest.mark.timed
def test_a_terminal_that_was_stopped_stops_nobody():
    master, slave = pty.openpty()
    out = os.fdopen(slave, "w")
    log = make_log(now=lambda: 100.0, stream=out, form="auto")
    termios.tcflow(slave, termios.TCOOFF)  # Ctrl-S
    began = time.monotonic()
    for _ in range(100):
        log.info("lost")
    assert time.monotonic() - began < 2.0
    termios.tcflow(slave, termios.TCOON)
    log.info("again")
    told = os.read(master, 1 << 16)
    assert b"log_lines_lost lines=100" in told and b"again" in told and told.count(b"lost ") == 1
    out.close()
    os.close(master)


def test_the_same_trouble_is_told_once_a_minute_with_the_count():
    out, at = io.StringIO(), [0.0]
    seldom = Seldom(make_log(now=lambda: 0.0, stream=out, form="json"), now=lambda: at[0])
    for _ in range(50):
        seldom.warning("slow_disk", ms=5)
    seldom.error("other")
    seldom.warning("slow_disk", about="sdb", ms=5)
    at[0] = REPEAT_S
    seldom.warning("slow_disk", ms=6)
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(r["event"], r.get("repeated")) for r in records] == [
        ("slow_disk", None),
        ("other", None),
        ("slow_disk", None),
        ("slow_disk", 49),
    ]
