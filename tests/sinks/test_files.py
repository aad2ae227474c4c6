"""Results in files and functions: whole or not at all, and read back as they were."""

import json
import os
import resource

import numpy
import pytest

from forebay import sinks, sources
from forebay.errors import InvalidError, StoreFullError, UnsupportedError
from forebay.sources.failures import SinkError
from forebay.streams.ports import Result, Sink


def result(value, seq=0, stream="door"):
    return Result(value, stream, seq, 1.5, 2.5)


def test_each_satisfies_what_a_pipeline_asks(tmp_path):
    for sink in (sinks.callback(print), sinks.file(tmp_path / "x"), sinks.mp4(tmp_path / "x.mp4", fps=5)):
        assert isinstance(sink, Sink)
        sink.close()


def test_a_function_hears_every_result_and_the_end():
    heard = []
    sink = sinks.callback(heard.append, end=lambda: heard.append("end"))
    sink.write(result(1))
    sink.close()
    assert heard == [result(1), "end"]
    failing = sinks.callback(lambda one: 1 / one.value)
    failing.write(result(1))
    with pytest.raises(ZeroDivisionError):
        failing.write(result(0))
    assert failing.counts() == {"written": 1, "failed": 1}


def test_lines_of_json_say_all_that_is_known(tmp_path):
    path = tmp_path / "out.ndjson"
    sink = sinks.file(path)
    sink.write(result({"faces": [1, numpy.int64(2), numpy.float32(0.5)]}))
    sink.write(Result("x", "hall", 3, 1.0, 2.0, 2, fallback=True, facts={"k": "v"}))
    sink.close()
    sink.close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert first == {
        "stream": "door", "seq": 0, "captured_at": 1.5, "served_at": 2.5, "degraded": 0, "fallback": False,
        "value": {"faces": [1, 2, 0.5]},
    }  # fmt: skip
    assert (second["degraded"], second["fallback"], second["facts"]) == (2, True, {"k": "v"})
    assert sink.counts() == {"written": 2, "bytes": path.stat().st_size, "failed": 0}


@pytest.mark.parametrize("value", [object(), float("nan"), {1: {2}}, numpy.zeros(3), b"x"])
def test_what_is_no_json_is_refused_and_leaves_no_trace(tmp_path, value):
    path = tmp_path / "out.ndjson"
    sink = sinks.file(path)
    sink.write(result(1))
    with pytest.raises(InvalidError, match="the value of door 7 is not JSON"):
        sink.write(result(value, 7))
    sink.write(result(2))
    sink.close()
    assert [json.loads(line)["value"] for line in path.read_text().splitlines()] == [1, 2]


def test_arrays_and_bytes_and_json_come_back_from_a_raw_file(tmp_path):
    path = tmp_path / "out.raw"
    sink = sinks.file(path, form="raw")
    array = numpy.arange(24, dtype=">i2").reshape(2, 3, 4)
    for number, value in enumerate((array, array[:, ::2].T, b"jpeg", {"n": 1}, numpy.zeros((0, 3)))):
        sink.write(result(value, number))
    sink.close()
    got = list(sinks.read_raw(path))
    assert [header["seq"] for header, _ in got] == [0, 1, 2, 3, 4]
    assert numpy.array_equal(got[0][1], array) and numpy.array_equal(got[1][1], array[:, ::2].T)
    assert (got[2][1], got[3][1], got[4][1].shape) == (b"jpeg", {"n": 1}, (0, 3))


@pytest.mark.parametrize("form", ["ndjson", "raw"])
def test_what_a_killed_writer_left_is_cut_off_at_the_next_opening(tmp_path, form):
    path = tmp_path / "out"
    sink = sinks.file(path, form=form)
    sink.write(result("a" * 100_000))
    sink.close()
    whole = path.read_bytes()
    for cut in (len(whole) - 1, len(whole) // 2, 5, 0):
        path.write_bytes(whole + whole[:cut])
        again = sinks.file(path, form=form)
        again.write(result("b", 1))
        again.close()
        if form == "ndjson":
            values = [json.loads(line)["value"] for line in path.read_text().splitlines()]
        else:
            values = [value for _, value in sinks.read_raw(path)]
        assert values == ["a" * 100_000, "b"]


def test_a_raw_file_whose_last_part_is_torn_is_read_up_to_it(tmp_path):
    path = tmp_path / "out.raw"
    sink = sinks.file(path, form="raw")
    sink.write(result(b"one"))
    sink.close()
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        assert [value for _, value in sinks.read_raw(path)] == [b"one"]


def test_a_file_keeps_its_bound(tmp_path):
    sink = sinks.file(tmp_path / "out", bytes_max=300)
    sink.write(result("x"))
    with pytest.raises(StoreFullError, match="may have 300 bytes"):
        sink.write(result("y" * 300))
    sink.write(result("z"))
    assert sink.counts()["failed"] == 1
    sink.close()


def test_on_a_full_disk_nothing_half_written_stays(tmp_path):
    path = tmp_path / "out"
    sink = sinks.file(path)
    sink.write(result("x"))
    size = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = __import__("signal").signal(__import__("signal").SIGXFSZ, __import__("signal").SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200, before[1]))  # a write beyond is cut, then refused
    try:
        with pytest.raises(StoreFullError, match="File too large"):
            sink.write(result("y" * 5_000))
        assert path.stat().st_size == size
        sink.write(result("z"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        __import__("signal").signal(__import__("signal").SIGXFSZ, handler)
    sink.close()
    assert [json.loads(line)["value"] for line in path.read_text().splitlines()] == ["x", "z"]


@pytest.mark.parametrize("settings", [{"form": "csv"}, {"bytes_max": 0}, {"path": "/nowhere/x"}])
def test_a_wrong_argument_is_named(settings, tmp_path):
    with pytest.raises(InvalidError, match=next(iter(settings))):
        sinks.file(**({"path": tmp_path / "x"} | settings))


def test_a_film_is_made_of_arrays_and_can_be_seen(tmp_path):
    path = tmp_path / "out.mp4"
    sink = sinks.mp4(path, fps=10)
    for number in range(20):
        sink.write(result(numpy.full((32, 48, 3), number * 10, "uint8"), number))
    sink.close()
    sink.close()
    got = [int(one.pixels.mean()) for one in sources.ffmpeg(str(path))]
    assert len(got) == 20 and got == sorted(got) and got[-1] > 150
    assert sink.counts() == {"written": 20, "failed": 0}


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (numpy.zeros((32, 50, 3), "uint8"), "this film is of (32, 48, 3) uint8"),
        (numpy.zeros((32, 48, 3), "float32"), "this film is of"),
        ({"n": 1}, "made of arrays, not of dict"),
    ],
)
def test_what_is_none_of_a_film_leaves_the_others_whole(tmp_path, value, rule):
    path = tmp_path / "out.mp4"
    sink = sinks.mp4(path, fps=10)
    good = numpy.zeros((32, 48, 3), "uint8")
    sink.write(result(good))
    with pytest.raises(InvalidError) as caught:
        sink.write(result(value))
    assert rule in str(caught.value)
    sink.write(result(good))
    sink.close()
    assert len(list(sources.ffmpeg(str(path)))) == 2
    assert sink.counts() == {"written": 2, "failed": 1}


def test_a_film_whose_ffmpeg_dies_says_so_and_takes_no_more(tmp_path):
    sink = sinks.mp4(tmp_path / "out.mp4", fps=10)
    good = result(numpy.zeros((480, 640, 3), "uint8"))
    sink.write(good)
    os.kill(sink._process.pid, 9)
    with pytest.raises(SinkError, match=r"out\.mp4: ffmpeg has ended"):
        for _ in range(50):
            sink.write(good)
    with pytest.raises(SinkError, match="the film has ended"):
        sink.write(good)
    sink.close()


def test_a_film_where_there_is_no_room_says_what_ffmpeg_said(tmp_path):
    sink = sinks.mp4(tmp_path / "no" / "such" / "out.mp4", fps=10)
    with pytest.raises(SinkError, match=r"out\.mp4: ffmpeg .*No such file"):
        sink.write(result(numpy.zeros((480, 640, 3), "uint8")))
        sink.write(result(numpy.zeros((480, 640, 3), "uint8")))
        sink.close()


def test_a_film_without_ffmpeg_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="ffmpeg is not installed: apt-get install ffmpeg"):
        sinks.mp4(tmp_path / "x.mp4", fps=10)
