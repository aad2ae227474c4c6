"""Sources and sinks in a pipeline: a film to a file, pushes that hear the pressure, a camera that is decimated."""

import json
import threading

import httpx
import numpy
import pytest

import forebay
from forebay import sinks, sources
from tests.waiting import until


def brightness(frame):
    return {"mean": int(numpy.asarray(frame).mean())}


def test_a_film_goes_through_a_pipeline_into_a_file_without_a_loss(tmp_path):
    film, lines = tmp_path / "in.mp4", tmp_path / "out.ndjson"
    made = sinks.mp4(film, fps=25)
    pipeline = forebay.Pipeline(forebay.Stage(lambda frame: frame, name="through"))
    stack = numpy.repeat(numpy.arange(0, 240, 8, "uint8"), 32 * 48 * 3).reshape(30, 32, 48, 3)
    assert pipeline.run(sources.arrays(stack, stream="drawn"), sink=made).served == 30
    out = sinks.file(lines)
    report = forebay.Pipeline(forebay.Stage(brightness)).run(sources.ffmpeg(str(film)), sink=out)
    assert (report.sent, report.served, report.dropped) == (30, 30, 0)
    means = [json.loads(line)["value"]["mean"] for line in lines.read_text().splitlines()]
    assert len(means) == 30 and means == sorted(means)


def test_an_error_of_a_source_ends_its_stream_and_is_raised(tmp_path):
    def frames():
        yield numpy.zeros((2, 2), "uint8")
        raise OSError("the disk is gone")

    heard = []
    with pytest.raises(OSError, match="the disk is gone"):
        forebay.Pipeline(forebay.Stage(brightness)).run(sources.iterable(frames()), sink=heard.append)
    assert len(heard) == 1


def test_who_pushes_into_a_full_pipeline_hears_it_and_every_frame_is_accounted_for():
    gate, heard = threading.Event(), []

    def slow(frame):
        assert gate.wait(60)
        return {"bytes": len(frame)}

    source = sources.push()
    stage = forebay.Stage(slow, queue=forebay.Queue(2, on_full="drop_oldest"))
    running = forebay.Pipeline(stage).start(source, sinks=[heard.append])

    def put():
        return httpx.put(f"{source.url}/v1/streams/door", content=b"jpeg", timeout=30, trust_env=False)

    def is_full():
        answer = put()
        return answer.status_code == 429 or answer.json()["credits"] == 0

    until(is_full, 40, "who sends hears that there is no room")
    gate.set()
    until(lambda: heard, 30, "a result came out")
    source.close()
    running.wait()
    (stream,) = running.report().streams
    assert stream.sent == stream.served + sum(stream.dropped.values())
    assert stream.stream == "door"
    assert stream.sent + source.counts()["skipped"] == source.counts()["frames"]
    assert stream.served == len(heard)


def test_a_camera_that_is_lost_in_a_run_goes_on_and_its_counts_are_in_the_report():
    tries = []

    def connect():
        tries.append(1)
        if len(tries) > 3:
            return
        for _ in range(5):
            yield numpy.zeros((2, 2), "uint8")
        if len(tries) < 3:
            raise OSError("cable")

    camera = sources.reconnecting(connect, stream="yard", backoff=forebay.Backoff("1ms", cap="2ms"))
    running = forebay.Pipeline(forebay.Stage(brightness)).start(camera, sinks=[lambda result: None])
    until(lambda: len(tries) > 4, 30, "it tried again and again")
    camera.close()
    running.wait()
    (stream,) = running.report().streams
    assert stream.source["reconnects"] == 2
    assert stream.source["lost_broken"] == 2
    assert stream.sent == stream.source["frames"] - stream.source["skipped"]
