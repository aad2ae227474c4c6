"""Stages in processes of their own: what goes in comes out, and who is killed costs the frames it had, counted."""

import os
import signal

import numpy
import pytest

from forebay.errors import AppError, InvalidError
from forebay.pipeline import Pipeline, Stage
from tests.pipeline import parts
from tests.pipeline.parts import WAIT_MAX_S, Camera, frames
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)


def test_arrays_go_through_a_process_and_come_back_in_order():
    results = []
    stages = Stage(parts.twice, processes=True, replicas=2), Stage(parts.first_byte)
    report = Pipeline(*stages).run(frames(60), sink=results.append)
    assert [one.value for one in results] == [number * 2 for number in range(60)]
    assert (report.served, report.dropped) == (60, 0)


def test_a_process_is_not_this_one_and_two_replicas_are_two():
    results = []
    camera = Camera()
    running = Pipeline(Stage(parts.Detect, processes=True, replicas=2)).start(camera, sinks=[results.append])

    def fed():
        camera.feed(*[1] * 20)
        return len({one.value["pid"] for one in results}) == 2

    until(fed, WAIT_MAX_S, "both serve")
    camera.end()
    assert running.wait(WAIT_MAX_S)
    assert os.getpid() not in {one.value["pid"] for one in results}


def test_frames_may_change_their_size_and_kind_and_need_not_be_contiguous():
    given = [
        numpy.arange(24, dtype="uint8").reshape(2, 4, 3),
        numpy.arange(4000, dtype="float32").reshape(100, 40)[::2, ::3],
        numpy.asfortranarray(numpy.arange(12).reshape(3, 4)),
        b"bytes as they are",
    ]
    results = []
    Pipeline(Stage(parts.same, processes=True)).run(given, sink=results.append)
    for sent, got in zip(given, results, strict=True):
        assert numpy.array_equal(got.value, sent) if isinstance(sent, numpy.ndarray) else got.value == sent


def test_results_kept_are_not_written_over_by_later_ones():
    results = []
    Pipeline(Stage(parts.same, processes=True)).run(frames(30), sink=results.append)
    assert [int(one.value.flat[0]) for one in results] == list(range(30))


def test_an_output_that_cannot_travel_fails_that_frame_alone_and_says_why():
    results = []
    report = Pipeline(Stage(parts.not_json, processes=True)).run(frames(3), sink=results.append)
    assert [one.value for one in results] == [{"n": 0, 5: [1, 2], "b": b"x"}, {"n": 2, 5: [1, 2], "b": b"x"}]
    assert report.streams[0].dropped == {"failed": 1}
    assert "JSON values, bytes and arrays, not object" in report.stages[0].last_error


def test_a_process_that_dies_loses_the_frames_it_had_is_started_again_and_counted():
    results = []
    report = Pipeline(Stage(parts.DiesOnThree, processes=True)).run(frames(8), sink=results.append)
    assert [one.value for one in results] == [0, 1, 2, 4, 5, 6, 7]
    assert report.streams[0].dropped == {"lost": 1}
    assert report.stages[0].restarts == {"signal": 1}
    assert "ended by signal 9" in report.stages[0].last_error


@pytest.mark.slow
def test_a_process_killed_from_outside_comes_back_and_every_frame_is_accounted_for():
    results = []
    camera = Camera()
    running = Pipeline(Stage(parts.Detect, processes=True)).start(camera, sinks=[results.append])
    worker = running.crews[0].workers[0]
    for _ in range(3):
        before, pid = len(results), worker.pid
        os.kill(pid, signal.SIGKILL)

        def served(before=before):
            camera.feed(1)
            return len(results) > before + 5

        until(served, WAIT_MAX_S, "it serves again")
        assert worker.pid != pid
    camera.end()
    assert running.wait(WAIT_MAX_S)
    (stream,) = running.report().streams
    assert stream.sent == stream.served + sum(stream.dropped.values())
    assert set(stream.dropped) <= {"lost", "replaced"} and stream.in_flight == 0
    assert running.report().stages[0].restarts == {"signal": 3}


@pytest.mark.slow
def test_a_process_killed_while_it_starts_is_started_again_and_the_run_can_be_stopped_meanwhile():
    results, camera = [], Camera()
    running = Pipeline(Stage(parts.Detect, processes=True)).start(camera, sinks=[results.append])
    worker = running.crews[0].workers[0]
    for _ in range(2):
        before, pid = len(results), worker.pid
        os.kill(pid, signal.SIGKILL)
        camera.feed(1)  # for the thread to find out
        os.kill(until(lambda pid=pid: worker.pid not in (None, pid) and worker.pid, WAIT_MAX_S, "next"), 9)

        def served(before=before):
            camera.feed(1)
            return len(results) > before

        until(served, WAIT_MAX_S, "it serves again")
    os.kill(worker.pid, signal.SIGKILL)
    camera.feed(1)
    assert running.stop(grace_s=WAIT_MAX_S)
    (stream,) = running.report().streams
    assert stream.sent == stream.served + sum(stream.dropped.values())


@pytest.mark.slow
def test_a_call_that_takes_too_long_is_killed_and_the_stage_goes_on():
    results = []
    stage = Stage(parts.HangsOnThree, processes=True, timeout="8s")
    report = Pipeline(stage).run(frames(6), sink=results.append)
    assert [one.value for one in results] == [0, 1, 2, 4, 5]
    assert report.stages[0].restarts == {"timeout": 1}


def test_no_process_is_left_when_it_has_ended():
    running = Pipeline(Stage(parts.Detect, processes=True, replicas=2)).start(frames(3))
    pids = [worker.pid for worker in running.crews[0].workers]
    assert running.wait(WAIT_MAX_S)
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), WAIT_MAX_S, "both are gone")


def test_descriptors_are_given_back():
    def run():
        Pipeline(Stage(parts.same, processes=True)).run(frames(3))

    run()
    before = len(os.listdir("/proc/self/fd"))
    run()
    until(lambda: len(os.listdir("/proc/self/fd")) <= before, WAIT_MAX_S, "no descriptor is left")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (parts.Broken, "RuntimeError: no weights"),
        (parts.DiesLoading, "its process ended with 7 while it loaded"),
    ],
)
def test_a_stage_that_cannot_be_loaded_is_one_line(target, said):
    with pytest.raises(AppError, match=said):
        Pipeline(Stage(target, processes=True)).run(frames(1))


def test_what_another_process_cannot_import_is_refused_at_once():
    with pytest.raises(InvalidError, match="must be a function or a class at the top of a module"):
        Pipeline(Stage(lambda value: value, name="inner", processes=True)).run(frames(1))


def test_what_a_stage_forks_can_be_ended_by_a_signal():
    results = []
    Pipeline(Stage(parts.ended, processes=True, timeout="30s")).run(frames(3), sink=results.append)
    assert [one.value for one in results] == [signal.SIGTERM] * 3
