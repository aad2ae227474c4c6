"""A mistake in a pipeline is one line: where, which argument, its rule, its value."""

import pytest

import forebay
from forebay import Backoff, Breaker, Decimate, Degrade, Pipeline, Queue, Scale, Stage
from forebay.errors import AppError, InvalidError
from tests.pipeline import parts


async def asynchronous(value):
    return value


def generator(value):
    yield value


def no_parameter():
    return None


def with_default(value, scale=2):
    return value * scale


MISTAKES = [
    (lambda: Stage(asynchronous), "stage asynchronous: it must be a plain function"),
    (lambda: Stage(generator), "it must return one value for a frame, not be a generator"),
    (lambda: Stage(no_parameter), "it is called with a value"),
    (lambda: Stage(7), "a stage is a function or a class, not int"),
    (lambda: Stage(object), "the class needs a method predict"),
    (lambda: Stage(parts.same, replicas=0), "replicas must be a whole number from 1 to 64, not 0"),
    (lambda: Stage(parts.same, replicas="per_cpu"), 'replicas must be a whole number or "per_gpu"'),
    (lambda: Stage(parts.same, batch_max=4), "batch_max must be 1 for a function of one value"),
    (lambda: Stage(parts.same, queue="64"), "queue must be a forebay.Queue or a number of frames"),
    (lambda: Stage(parts.same, queue=0), "queue: maxsize must be a whole number from 1"),
    (lambda: Stage(parts.same, on_full="drop"), "policy must be one of block, drop_newest"),
    (lambda: Stage(parts.same, queue=Queue(on_full="reject"), on_full="block"), "on_full is given twice"),
    (lambda: Stage(parts.same, replica=2), "there is no argument replica; did you mean replicas?"),
    (lambda: Stage(parts.same, timeout=0), "timeout must be a duration above 0"),
    (lambda: Stage(parts.same, breaker=3), "breaker must be a forebay.Breaker"),
    (lambda: Stage(parts.same, breaker=Breaker(fallback=1)), "give fallback= to the stage"),
    (lambda: Stage(parts.same, fallback=3), "fallback: a stage is a function or a class"),
    (lambda: Stage(parts.same, degrade=0.9), "degrade must be a forebay.Degrade"),
    (lambda: Stage(parts.same, queue=Queue(degrade_at=0.5), degrade=Degrade([(0.9, None)])), "not both"),
    (lambda: Stage(parts.same, name=""), "name must be a text"),
    (lambda: Stage("Detect", batch_max=4), "it is a task, whose own processes and batches serve it"),
    (lambda: Stage("Detect", processes=True), "it is a task, whose own processes"),
    (lambda: Stage("Detect", replicas="per_gpu"), "it is a task, whose own processes"),
    (lambda: Stage(""), "name must be a text"),
    (
        lambda: Pipeline(Stage("Detect")).start([b"x"]),
        "stage Detect: it is a task, so its pipeline runs under",
    ),
    (lambda: Queue(put_timeout="soon"), "put_timeout must be a duration"),
    (lambda: Queue(bytes_max="much"), "bytes_max must be a size"),
    (lambda: Queue(drop_at=0.9, degrade_at=0.95), "degrade_at .* must be below drop_at"),
    (lambda: Queue.sized(0, "1s"), "peak_per_s"),
    (lambda: Queue.thresholds(drop=2000), "drop must be a whole number"),
    (lambda: Degrade([(0.9, 0.5)]), "a measure must be forebay.Scale"),
    (lambda: Degrade([0.9]), "a step must be"),
    (lambda: Degrade([(0.9, Scale(2))]), "Scale must be from 0.01 to 1"),
    (lambda: Degrade([(0.9, Decimate(0))]), "Decimate must be from 1"),
    (lambda: Pipeline(), "it has 1 to 32 stages, not 0"),
    (lambda: Pipeline(parts.same), "each stage must be a forebay.Stage"),
    (lambda: Pipeline(Stage(parts.same), Stage(parts.same)), "two stages are called same"),
    (lambda: Pipeline(Stage(parts.same), deadline="never"), "deadline must be a duration"),
    (lambda: Pipeline(Stage(parts.same), weights={"a": 0}), "the weight of a must be from"),
    (lambda: Pipeline(Stage(parts.same), protected="door"), "protected must be names of streams"),
    (lambda: Pipeline(Stage(parts.same)).run(), "it takes 1 to 256 sources, not 0"),
]


@pytest.mark.parametrize(("wrong", "said"), MISTAKES, ids=[said[:40] for _, said in MISTAKES])
def test_a_mistake_is_one_line(wrong, said):
    with pytest.raises(AppError, match=said) as told:
        wrong()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("source", [7, "clip.mp4", b"bytes"], ids=str)
def test_what_is_no_source_is_refused_in_one_line(source):
    with pytest.raises(InvalidError, match="a source is an iterable of arrays"):
        Pipeline(Stage(parts.same)).run(source)


def test_what_is_no_sink_is_refused_in_one_line():
    with pytest.raises(InvalidError, match="a sink is a function of one Result"):
        Pipeline(Stage(parts.same)).run([], sink=7)


def test_a_second_parameter_with_a_default_is_not_filled_with_facts():
    results = []
    Pipeline(Stage(with_default)).run([parts.frame_of(2)], sink=results.append)
    assert int(results[0].value.flat[0]) == 4


def test_the_pipeline_of_the_readme_is_declared_as_it_is_written():
    pipeline = forebay.Pipeline(
        forebay.Stage(
            parts.same, queue=forebay.Queue(64, put_timeout="500ms", on_full=Backoff("50ms", cap="1s"))
        ),
        forebay.Stage(
            parts.Detect,
            queue=forebay.Queue.sized(peak_per_s=60, wait_max="200ms"),
            on_full="drop_oldest",
            replicas="per_gpu",
            degrade=forebay.Degrade([(0.90, forebay.Scale(0.5)), (0.95, forebay.Scale(0.25))]),
            breaker=forebay.Breaker(failures=3, window="5s"),
            fallback=parts.twice,
        ),
        forebay.Stage(parts.shape_of),
    )
    first, second, _ = pipeline.stages
    assert (first.terms.items_max, first.put_timeout_s, first.terms.policy.cap_s) == (64, 0.5, 1.0)
    assert (second.terms.items_max, second.terms.policy, second.processes) == (16, "drop_oldest", True)
    assert (second.breaker.failures, second.breaker.window_s) == (3, 5.0)
