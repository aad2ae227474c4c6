"""A pipeline in one process: frames go through in order, whatever a queue drops is counted, and it ends."""

import logging
import sys
import threading
import time
from collections import Counter

import numpy
import pytest

import forebay
from forebay.errors import AppError, InvalidError, NoMemoryError
from forebay.pipeline import Pipeline, Queue, Stage
from forebay.streams.ports import Captured
from tests.pipeline import parts
from tests.pipeline.parts import WAIT_MAX_S, Camera, Detect, frame_of, frames
from tests.waiting import until


def adds_up(report):
    return all(one.sent == one.served + sum(one.dropped.values()) + one.in_flight for one in report.streams)


def test_frames_go_through_all_stages_in_their_order():
    results = []
    pipeline = Pipeline(Stage(parts.twice), Stage(parts.first_byte, replicas=4))
    report = pipeline.run(frames(100), sink=results.append)
    assert [one.value for one in results] == [number * 2 for number in range(100)]
    assert [one.seq for one in results] == list(range(100))
    assert (report.sent, report.served, report.dropped, report.state) == (100, 100, 0, "ended")
    assert adds_up(report)


def test_a_class_is_loaded_once_and_serves_batches_of_several_streams():
    sizes = []

    class Sized(Detect):
        def predict(self, values):
            sizes.append(len(values))
            return super().predict(values)

    results = []
    pipeline = Pipeline(Stage(Sized, batch_max=4, batch_wait="5s"))
    pipeline.run(
        [Captured(frame_of(1), "a", time.time()), Captured(frame_of(2), "b", time.time())] * 6,
        sink=results.append,
    )
    assert sizes == [4, 4, 4], "batches are mixed across streams"
    assert Counter(one.stream for one in results) == {"a": 6, "b": 6}
    assert results[0].value["device"] == "cpu"


def test_a_frame_for_which_a_stage_returns_none_ends_there_as_served():
    results = []
    report = Pipeline(Stage(parts.none_of_odd), Stage(parts.first_byte)).run(frames(10), sink=results.append)
    assert [one.value for one in results] == [0, 2, 4, 6, 8]
    assert report.served == 10


def test_a_stage_may_ask_for_the_facts_of_a_frame():
    seen = []

    def look(value, facts):
        seen.append(facts)
        return value

    source = [Captured(frame_of(), "door", time.time(), facts={"n": 1})]
    Pipeline(Stage(look), deadline="1h").run(source)
    (facts,) = seen
    assert (facts.stream, facts.seq, facts.degraded, facts.facts) == ("door", 0, 0, {"n": 1})
    assert facts.deadline == pytest.approx(facts.captured_at + 3600)


def test_an_exception_costs_one_frame_and_is_told():
    results = []
    report = Pipeline(Stage(parts.fails_on_three)).run(frames(6), sink=results.append)
    assert [one.value for one in results] == [0, 1, 2, 4, 5]
    assert report.streams[0].dropped == {"failed": 1}
    assert report.stages[0].last_error == "ValueError: three"


def test_failed_in_place_of_one_output_fails_that_one_alone():
    report = Pipeline(Stage(parts.OneFails, batch_max=4)).run(frames(8))
    assert (report.served, report.streams[0].dropped) == (4, {"failed": 4})


def test_a_predict_that_returns_too_few_values_fails_its_batch_with_a_clear_text():
    report = Pipeline(Stage(parts.WrongCount, batch_max=2)).run(frames(4))
    assert report.streams[0].dropped == {"failed": 4}
    assert "one for each frame" in report.stages[0].last_error


@pytest.mark.parametrize(
    ("policy", "kept"),
    [("drop_oldest", [0, 8, 9]), ("drop_newest", [0, 1, 2]), ("latest_only", [0, 9]), ("reject", [0, 1, 2])],
)
def test_a_full_queue_keeps_what_its_policy_says(policy, kept):
    gate, results, camera = parts.Gate(), [], Camera()
    pipeline = Pipeline(Stage(gate, name="gate", queue=2, on_full=policy), Stage(parts.first_byte))
    running = pipeline.start(camera, sinks=[results.append])
    camera.feed(0)
    assert gate.inside.acquire(timeout=WAIT_MAX_S)
    camera.feed(*range(1, 10))
    camera.end()
    until(lambda: camera.taken == 11 and running.report().state == "draining", WAIT_MAX_S, "all were offered")
    gate.open.set()
    assert running.wait(WAIT_MAX_S)
    assert [one.value for one in results] == kept
    report = running.report()
    assert adds_up(report) and report.dropped == 10 - len(kept)


def test_block_makes_the_source_wait_and_loses_nothing():
    gate, given = parts.Gate(), []

    def source():
        for number in range(20):
            given.append(number)
            yield frame_of(number)

    running = Pipeline(Stage(gate, name="gate", queue=3)).start(source())
    assert gate.inside.acquire(timeout=WAIT_MAX_S)
    until(lambda: running.report().sent == 5, WAIT_MAX_S, "one in the stage, three in the queue, one waits")
    assert (len(given), running.report().streams[0].in_flight) == (5, 5)
    gate.open.set()
    assert running.wait(WAIT_MAX_S)
    report = running.report()
    assert (report.served, report.dropped) == (20, 0)
    assert report.stages[0].producer_wait_ratio > 0


def test_a_frame_that_waited_put_timeout_for_room_is_dropped_as_timeout():
    gate, camera = parts.Gate(), Camera(live=False)
    running = Pipeline(Stage(gate, name="gate", queue=Queue(1, put_timeout="20ms"))).start(camera)
    camera.feed(0)
    assert gate.inside.acquire(timeout=WAIT_MAX_S)
    camera.feed(*range(1, 6))
    camera.end()
    until(lambda: running.report().state == "draining", WAIT_MAX_S, "all were offered")
    gate.open.set()
    assert running.wait(WAIT_MAX_S)
    assert running.report().streams[0].dropped == {"timeout": 4}


def test_a_waiting_live_source_is_told_and_its_newest_frame_replaces_the_one_that_waited():
    gate, results, camera = parts.Gate(), [], Camera()
    backoff = forebay.Backoff("10ms", cap="20ms")
    running = Pipeline(Stage(gate, name="gate", queue=1, on_full=backoff), Stage(parts.first_byte)).start(
        camera, sinks=[results.append]
    )
    camera.feed(0)
    assert gate.inside.acquire(timeout=WAIT_MAX_S)
    camera.feed(*range(1, 10))
    until(lambda: camera.taken == 10, WAIT_MAX_S, "the camera went on")
    until(lambda: running.report().dropped == 7, WAIT_MAX_S, "the newest replaces the one that waits")
    waits = lambda: [one.retry_after_s for one in camera.told if one.retry_after_s is not None]
    until(lambda: len(waits()) >= 3, WAIT_MAX_S, "it is told after each wait")
    assert waits()[:3] == [0.01, 0.02, 0.02]
    gate.open.set()
    camera.end()
    assert running.wait(WAIT_MAX_S)
    assert [one.value for one in results] == [0, 1, 9]
    assert running.report().streams[0].dropped == {"replaced": 7}


def test_a_source_is_told_how_much_room_each_of_its_streams_has():
    gate, camera = parts.Gate(), Camera()
    running = Pipeline(Stage(gate, name="gate", queue=4, on_full="drop_newest")).start(camera)
    camera.feed(0)
    assert gate.inside.acquire(timeout=WAIT_MAX_S)
    camera.feed(1, 2, 3, 4)
    until(lambda: camera.told and camera.told[-1].credits == 0, WAIT_MAX_S, "no room is left")
    gate.open.set()
    until(lambda: camera.told[-1].credits > 0, WAIT_MAX_S, "it is told when there is room again")
    camera.end()
    assert running.wait(WAIT_MAX_S)
    assert running.report().streams[0].source == {"reconnects": 2}


def test_late_frames_are_dropped_before_the_model_sees_them():
    seen = []
    source = [Captured(frame_of(1), "a", time.time() - 60), Captured(frame_of(2), "a", time.time() + 9)]
    report = Pipeline(Stage(lambda value: seen.append(value.flat[0]), name="see"), deadline="10s").run(source)
    assert (seen, report.streams[0].dropped) == ([2], {"late": 1})


def test_a_degraded_frame_is_scaled_for_the_stage_that_asked_and_counted():
    holds, results, camera = parts.Gate(), [], Camera()
    degrade = forebay.Degrade([(0.5, forebay.Scale(0.5)), (0.75, forebay.Scale(0.25))])

    def shape(value, facts):
        holds(value)
        return (*value.shape, facts.degraded)

    running = Pipeline(Stage(shape, queue=4, on_full="drop_newest", degrade=degrade)).start(
        camera, sinks=[results.append]
    )
    camera.feed(0)
    assert holds.inside.acquire(timeout=WAIT_MAX_S)
    camera.feed(1, 2, 3, 4)
    camera.end()
    until(lambda: running.report().state == "draining", WAIT_MAX_S, "all are in")
    holds.open.set()
    assert running.wait(WAIT_MAX_S)
    sizes = [one.value for one in results]
    assert sizes == [(8, 12, 3, 0), (8, 12, 3, 0), (8, 12, 3, 0), (4, 6, 3, 1), (2, 3, 3, 2)]
    report = running.report().streams[0]
    assert (report.degraded, report.degraded_ratio) == ({"1": 1, "2": 1}, 0.4)


def test_the_breaker_opens_at_three_failures_and_the_fallback_answers():
    results = []
    calls = []

    def fails(value):
        calls.append(1)
        raise OSError("down")

    def cached(value):
        return "cached"

    breaker = forebay.Breaker(failures=3, window="5s")
    stage = Stage(fails, name="model", breaker=breaker, fallback=cached)
    report = Pipeline(stage).run(frames(10), sink=results.append)
    assert len(calls) == 3
    assert [(one.value, one.fallback) for one in results] == [("cached", True)] * 7
    assert (report.stages[0].breaker, report.stages[0].breaker_trips) == ("open", 1)
    assert (report.streams[0].dropped, report.streams[0].fallback) == ({"failed": 3}, 7)


def test_an_open_breaker_without_a_fallback_drops_and_says_so():
    breaker = forebay.Breaker(failures=2, window="5s")

    def fails(value):
        raise OSError("down")

    report = Pipeline(Stage(fails, name="model", breaker=breaker)).run(frames(10))
    assert report.streams[0].dropped == {"failed": 2, "breaker": 8}


def test_a_stream_that_floods_takes_nothing_from_one_that_does_not():
    gate, results = parts.Gate(), []
    flood, quiet = Camera("flood"), Camera("quiet")
    running = Pipeline(Stage(gate, name="gate", queue=8, on_full="drop_oldest")).start(
        flood, quiet, sinks=[results.append]
    )
    flood.feed(0)
    assert gate.inside.acquire(timeout=WAIT_MAX_S)
    flood.feed(*range(1, 100))
    quiet.feed(1, 2, 3)
    flood.end()
    quiet.end()
    until(lambda: running.report().state == "draining", WAIT_MAX_S, "all were offered")
    gate.open.set()
    assert running.wait(WAIT_MAX_S)
    reports = {one.stream: one for one in running.report().streams}
    assert (reports["quiet"].served, reports["quiet"].dropped) == (3, {})
    assert reports["flood"].served == 6


def test_a_protected_stream_loses_nothing_while_another_has_frames_to_lose():
    gate = parts.Gate()
    door, yard = Camera("door"), Camera("yard")
    pipeline = Pipeline(Stage(gate, name="gate", queue=4, on_full="drop_oldest"), protected=["door"])
    running = pipeline.start(door, yard)
    yard.feed(0)
    assert gate.inside.acquire(timeout=WAIT_MAX_S)
    yard.feed(1, 2, 3, 4)
    until(lambda: yard.taken == 5 and running.report().stages[0].depth == 4, WAIT_MAX_S, "it is full")
    door.feed(1, 2, 3, 4)
    door.end()
    yard.end()
    until(lambda: running.report().state == "draining", WAIT_MAX_S, "all were offered")
    gate.open.set()
    assert running.wait(WAIT_MAX_S)
    reports = {one.stream: one for one in running.report().streams}
    assert (reports["door"].served, reports["yard"].served) == (4, 1)


def test_stop_closes_the_source_serves_what_waits_and_accounts_for_all():
    camera = Camera()
    running = Pipeline(Stage(parts.first_byte)).start(camera)
    camera.feed(*range(20))
    until(lambda: running.report().sent == 20, WAIT_MAX_S, "all are in")
    assert running.stop(grace_s=WAIT_MAX_S)
    report = running.report()
    assert (report.state, report.served, camera.closed) == ("ended", 20, True)


def test_what_waits_past_the_grace_is_dropped_as_ended():
    gate, camera = parts.Gate(), Camera()
    running = Pipeline(Stage(gate, name="gate")).start(camera)
    camera.feed(*range(5))
    until(
        lambda: running.report().sent == 5 and running.report().stages[0].depth == 4, WAIT_MAX_S, "four wait"
    )
    stopping = threading.Thread(target=running.stop, kwargs={"grace_s": 0.0})
    stopping.start()
    until(lambda: running.report().dropped == 4, WAIT_MAX_S, "what waited is dropped")
    gate.open.set()
    stopping.join()
    assert running.wait(WAIT_MAX_S)
    report = running.report()
    assert (report.served, report.streams[0].dropped) == (1, {"ended": 4})


def test_a_source_that_fails_ends_with_its_error_after_what_it_gave_was_served():
    results = []

    def source():
        yield frame_of(1)
        raise OSError("the camera is gone")

    with pytest.raises(OSError, match="the camera is gone"):
        Pipeline(Stage(parts.first_byte)).run(source(), sink=results.append)
    assert [one.value for one in results] == [1]


def test_a_sink_that_fails_is_counted_and_the_others_go_on(caplog):
    results = []

    def bad(result):
        raise OSError("disk full")

    with caplog.at_level(logging.WARNING):
        report = Pipeline(Stage(parts.first_byte)).run(frames(5), sinks=[bad, results.append])
    assert (report.sink_errors, len(results), report.served) == (5, 5, 5)
    assert caplog.text.count("disk full") == 1


def test_an_asynchronous_source_is_one_too():
    class Pushed:
        live, item_bytes_max = False, None

        async def __aiter__(self):
            for number in range(5):
                yield Captured(frame_of(number), "pushed", time.time())

        def press(self, pressure):
            pass

        def counts(self):
            return {}

        def close(self):
            pass

    results = []
    Pipeline(Stage(parts.first_byte)).run(Pushed(), sink=results.append)
    assert [one.value for one in results] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "bad", [object(), numpy.empty((0, 3), "uint8"), b""], ids=["object", "empty", "no bytes"]
)
def test_what_is_no_frame_ends_its_source_with_one_line_and_is_counted(bad):
    running = Pipeline(Stage(parts.same)).start([frame_of(1), bad, frame_of(2)])
    assert running.wait(WAIT_MAX_S)
    assert isinstance(running.errors[0], InvalidError)
    report = running.report()
    assert (report.served, report.streams[0].dropped) == (1, {"invalid": 1})


def test_queues_that_memory_cannot_hold_are_refused_with_the_largest_that_fits():
    pipeline = Pipeline(Stage(parts.same, queue=300), bytes_max="100MB")
    with pytest.raises(NoMemoryError, match=r"300 frames of 6,220,800 bytes .* the largest that fits is 16"):
        pipeline.run([numpy.zeros((1080, 1920, 3), "uint8")])


def test_a_stage_whose_threads_begin_after_the_end_was_called_ends_too():
    for _ in range(50):
        running = Pipeline(Stage(parts.same), Stage(parts.twice, replicas=2)).start(frames(1))
        running.stop(grace_s=0.0)
        assert running.wait(WAIT_MAX_S)


def test_what_a_later_stage_cannot_hold_ends_the_run_too():
    def grow(value):
        return numpy.zeros((1000, 1000), "uint8")

    pipeline = Pipeline(Stage(grow), Stage(parts.same, queue=100), bytes_max="10MB")
    with pytest.raises(NoMemoryError, match="stage same: a queue of 100 frames of 1,000,000 bytes"):
        pipeline.run([frame_of(1)])


def test_bytes_max_of_a_queue_makes_a_configuration_fit():
    pipeline = Pipeline(Stage(parts.same, queue=Queue(300, bytes_max="50MB")), bytes_max="100MB")
    assert pipeline.run([numpy.zeros((1080, 1920, 3), "uint8")]).served == 1


def test_a_stage_that_cannot_be_loaded_is_one_line():
    with pytest.raises(AppError, match="stage Broken: it could not be loaded: RuntimeError: no weights"):
        Pipeline(Stage(parts.Broken)).run(frames(1))


def test_a_stage_of_processes_that_stands_in_a_notebook_is_told_to_stand_in_a_file(monkeypatch):
    made = type("Typed", (), {"__module__": "__main__", "predict": lambda self, values: values})
    monkeypatch.setattr(sys.modules["__main__"], "Typed", made, raising=False)
    with pytest.raises(AppError, match="Typed.* must stand in a file, not in a notebook"):
        Pipeline(Stage(made, processes=True)).run(frames(1))


def test_900_950_1000_is_resolved_and_explained_once(caplog):
    with caplog.at_level(logging.WARNING):
        queue = Queue.thresholds()
    assert (queue.terms.items_max, queue.terms.ladder[0].at, queue.terms.drop_at) == (1000, 0.9, 0.95)
    assert "contradicts itself" in caplog.text


def test_a_queue_sized_for_60_a_second_and_200_ms_holds_16():
    assert Queue.sized(peak_per_s=60, wait_max="200ms").terms.items_max == 16
