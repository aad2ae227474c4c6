"""What may be declared, and the one sentence for each mistake."""

import dataclasses
import subprocess
import sys

import pytest

from forebay.core.retry import RetryPolicy
from forebay.declare import App, Context, Device, Failed, Permanent, Retry
from forebay.errors import AppError


def declared(target, **arguments):
    app = App()
    app.task(**arguments)(target)
    (task,) = app.tasks.values()
    return task


def echo(x):
    return x


def test_a_task_without_arguments_has_the_documented_defaults():
    spec = declared(echo).spec
    assert (spec.name, spec.kind, spec.version, spec.priority) == ("echo", "function", "1", 5)
    assert (spec.batch_max, spec.batch_wait_s, spec.concurrency) == (1, 0.0, 1)
    assert (spec.timeout_s, spec.load_timeout_s, spec.ttl_s) == (600.0, 600.0, 86_400.0)
    assert (spec.attempts_max, spec.settle.deaths_max, spec.deadline_s) == (3, 2, None)
    assert (spec.queue_max, spec.queue_bytes_max) == (None, None)  # the settings decide
    assert (spec.replicas, spec.devices, spec.recycle_after, spec.recycle_memory_b) == (None,) * 4


def test_every_argument_arrives_in_numbers_with_units():
    class Model:
        """What it does."""

        def load(self, device: Device) -> None: ...

        def predict(self, items: list[int]) -> list[int]: ...

    spec = declared(
        Model,
        name="big-model",
        batch_max=16,
        batch_wait="20ms",
        timeout="10m",
        load_timeout=30,
        attempts_max=5,
        backoff="2s",
        ttl="6h",
        deadline="1m",
        queue_max=10,
        queue_bytes_max="64MiB",
        replicas=2,
        devices=["cuda:0", "cuda:1"],
        version=2,
        priority="high",
        order="deadline",
        deaths_max=3,
        recycle_after=1000,
        recycle_memory="2GiB",
    ).spec
    assert (spec.name, spec.kind, spec.doc) == ("big-model", "class", "What it does.")
    assert (spec.batch_max, spec.batch_wait_s, spec.timeout_s, spec.load_timeout_s) == (16, 0.02, 600.0, 30.0)
    assert (spec.attempts_max, spec.settle.retry, spec.settle.deaths_max) == (5, RetryPolicy(base_s=2.0), 3)
    assert (spec.ttl_s, spec.deadline_s, spec.queue_max, spec.queue_bytes_max) == (
        21_600.0,
        60.0,
        10,
        64 << 20,
    )
    assert (spec.replicas, spec.devices, spec.version, spec.priority) == (2, ("cuda:0", "cuda:1"), "2", 2)
    assert spec.order.value == "deadline"
    assert (spec.recycle_after, spec.recycle_memory_b) == (1000, 2 << 30)


def test_a_batch_waits_5_ms_unless_told_otherwise():
    class Model:
        def predict(self, items): ...

    assert declared(Model, batch_max=8).spec.batch_wait_s == 0.005
    assert declared(Model).spec.batch_wait_s == 0.0
    assert declared(Model, batch_max=8, batch_wait=0).spec.batch_wait_s == 0.0


def test_the_decorator_returns_what_it_was_put_on():
    app = App()
    assert app.task()(echo) is echo


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"timeout": "soon"}, ["timeout", "duration", "'soon'"]),
        ({"timeout": 0}, ["timeout", "above 0", "0"]),
        ({"timeout": float("nan")}, ["timeout", "nan"]),
        ({"timeout": "9999d"}, ["timeout", "366 days"]),
        ({"load_timeout": -1}, ["load_timeout", "-1"]),
        ({"attempts_max": 0}, ["attempts_max", "whole number", "0"]),
        ({"attempts_max": 2.5}, ["attempts_max", "2.5"]),
        ({"attempts_max": True}, ["attempts_max", "True"]),
        ({"ttl": None}, ["ttl", "None"]),
        ({"deadline": "x"}, ["deadline"]),
        ({"queue_max": "many"}, ["queue_max", "'many'"]),
        ({"queue_bytes_max": "1 parsec"}, ["queue_bytes_max", "size", "parsec"]),
        ({"replicas": 0}, ["replicas"]),
        ({"replicas": "4..1"}, ["replicas", "a range of them like", "1..4", "not '4..1'"]),
        ({"replicas": "0..2"}, ["replicas", "from 1 to 1,024", "not '0..2'"]),
        ({"replicas": "1..1025"}, ["replicas", "from 1 to 1,024", "not '1..1025'"]),
        ({"replicas": "many"}, ["replicas", "not 'many'"]),
        ({"replicas": "2"}, ["replicas", "not '2'"]),
        ({"replicas": "1..4", "reserve": 0.5}, ["reserve", "left out where replicas is a range", "not 0.5"]),
        ({"devices": "tpu"}, ["devices", '"cpu"', "'tpu'"]),
        ({"devices": []}, ["devices"]),
        ({"devices": ["cpu", 3]}, ["devices", "3"]),
        ({"version": ""}, ["version"]),
        ({"version": "x" * 65}, ["version"]),
        ({"priority": "urgent"}, ["priority", '"high"', "'urgent'"]),
        ({"priority": 10}, ["priority", "10"]),
        ({"order": "lifo"}, ["order", '"arrival" or "deadline"', "'lifo'"]),
        ({"discipline": "lifo"}, ["discipline", '"deadline", "newest" or "codel"', "'lifo'"]),
        ({"wait_target": "50ms"}, ["wait_target", "discipline newest or codel", "'50ms'"]),
        (
            {"discipline": "codel", "wait_target": "2s", "wait_interval": "1s"},
            ["wait_target", "at most wait_interval", "'2s'"],
        ),
        ({"priority": True}, ["priority", "True"]),
        ({"backoff": "x"}, ["backoff"]),
        ({"deaths_max": 0}, ["deaths_max"]),
        ({"recycle_after": 0}, ["recycle_after"]),
        ({"recycle_memory": 0}, ["recycle_memory"]),
        ({"split": 1}, ["split", "True or False"]),
        ({"coalesce": 1}, ["coalesce", "True or False"]),
        ({"cache": 0}, ["cache", "above 0"]),
        ({"cache": "1h", "coalesce": False}, ["coalesce", "True where cache is given"]),
        ({"on_version": "keep"}, ["on_version", '"run", "wait" or "fail"']),
        ({"retry_on": "ValueError"}, ["retry_on", "exception classes"]),
        ({"permanent_on": [ValueError, 3]}, ["permanent_on", "3"]),
        ({"batch_max": 4}, ["batch_max", "plain function", "4"]),
        ({"replicas": 2}, ["replicas", "plain function", "workers", "not 2"]),
        ({"devices": "cuda"}, ["devices", "plain function", "'cuda'"]),
        ({"concurrency": 4}, ["concurrency", "async", "4"]),
        ({"name": "a b"}, ["name", "'a b'"]),
        ({"name": "ü"}, ["name"]),
        ({"batchmax": 4}, ["batchmax", "did you mean batch_max"]),
        ({"zzz": 4}, ["no argument zzz"]),
    ],
)
def test_a_wrong_argument_is_one_sentence_with_its_name_rule_and_value(arguments, words):
    with pytest.raises(AppError) as caught:
        declared(echo, **arguments)
    text = str(caught.value)
    assert text.startswith("task ")
    assert "\n" not in text
    for word in words:
        assert word in text


def no_data(): ...
def two(a, b): ...
def defaulted(a, b=1): ...
def starred(*items): ...
def keywords(**items): ...
def keyword_only(*, x): ...
def context_first(context: Context, x): ...
def two_contexts(x, a: Context, b: Context): ...
def unreadable(x: "Missing"): ...  # noqa: F821


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (no_data, "exactly one data parameter"),
        (two, "it has 2 (a, b)"),
        (defaulted, "exactly one data parameter"),
        (starred, "ordinary parameter"),
        (keywords, "ordinary parameter"),
        (keyword_only, "ordinary parameter"),
        (context_first, "one Context may follow"),
        (two_contexts, "one Context may follow"),
        (unreadable, "annotation cannot be read"),
        (3, "class or a plain function"),
        (len, "class or a plain function"),
    ],
)
def test_a_function_takes_one_payload_and_maybe_a_context(target, words):
    with pytest.raises(AppError) as caught:
        declared(target)
    assert words in str(caught.value)


def model(**methods):
    return type("Model", (), methods)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (model(), "predict(self, items)"),
        (model(predict=3), "predict(self, items)"),
        (model(predict=lambda self: 0), "exactly one data parameter"),
        (model(predict=lambda self, items: 0, load=lambda self, a, b: 0), "load(self, device)"),
        (model(predict=lambda self, items: 0, warm_up=lambda self, a: 0), "warm_up(self)"),
        (model(predict=lambda self, items: 0, __init__=lambda self, a: None), "made without arguments"),
    ],
)
def test_a_class_has_predict_and_is_made_without_arguments(target, words):
    with pytest.raises(AppError) as caught:
        declared(target)
    assert words in str(caught.value)


def test_predict_takes_and_returns_lists():
    class Single:
        def predict(self, item: int) -> list[int]: ...

    class Lonely:
        def predict(self, items: list[int]) -> int: ...

    with pytest.raises(AppError, match=r"annotate item as list\[int\]"):
        declared(Single)
    with pytest.raises(AppError, match=r"annotate its result as list\[int\]"):
        declared(Lonely)


def test_types_of_items_are_read_from_the_annotations():
    class Model:
        def predict(self, items: list[dict[str, int]], contexts: list[Context]) -> list[str | Failed]: ...

    signature = declared(Model).signature
    assert signature.input_type == dict[str, int]
    assert signature.output_type is str
    assert signature.context == "each"


def test_async_and_generator_handlers_are_known():
    async def coroutine(x, context): ...

    def parts(x) -> "list[int]":
        yield 1

    async def async_parts(x):
        yield 1

    assert declared(coroutine).spec.concurrency == 32
    assert declared(coroutine).signature.context == "one"
    assert declared(coroutine, concurrency=4).spec.concurrency == 4
    assert declared(parts).signature.in_parts
    assert declared(async_parts).signature.is_async
    assert declared(async_parts).signature.in_parts


def test_an_async_class_runs_one_batch_at_a_time_unless_told():
    class Model:
        async def predict(self, items): ...

    assert declared(Model).spec.concurrency == 1
    assert declared(Model, concurrency=2).spec.concurrency == 2


def test_a_name_is_taken_once():
    app = App()
    app.task()(echo)
    with pytest.raises(AppError, match="declared twice"):
        app.task()(echo)


def test_failures_carry_what_they_say():
    assert Retry(after="5s").after_s == 5.0
    assert Permanent("no").permanent
    assert (Failed("x").permanent, Failed("x").after_s) == (False, None)
    with pytest.raises(AppError, match="after"):
        Retry(after="soon")


def test_a_device_reads_as_the_frameworks_want_it():
    assert str(Device("cuda", 0, 3)) == "cuda:0"
    assert str(Device()) == "cpu"


def test_a_context_works_outside_a_worker():
    context = Context("id", 2, 5.0)
    context.progress(0.5, "half")
    assert (context.job_id, context.attempt, context.deadline, context.cancelled) == ("id", 2, 5.0, False)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="share"):
            context.progress(share)


def test_a_context_of_a_batch_is_cancelled_when_all_of_it_is():
    cancelled = {1}
    context = Context(tags=(1, 2), cancelled=cancelled)
    assert not context.cancelled
    cancelled.add(2)
    assert context.cancelled


def test_declaring_imports_nothing_but_the_standard_library():
    code = "import sys, forebay.declare; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    foreign = set(loaded.split()) - set(sys.stdlib_module_names) - {"forebay"}
    assert not {"msgspec", "psutil", "asyncio", "pydantic"} & (foreign | set(loaded.split()))


def test_a_task_cannot_be_changed_after_it_was_declared():
    with pytest.raises(dataclasses.FrozenInstanceError):
        declared(echo).split = False


def test_a_pipeline_is_declared_by_its_function_which_stays_what_it_is():
    app = App()

    def door():
        raise AssertionError("nobody calls it here")

    assert app.pipeline()(door) is door
    app.pipeline(name="yard")(door)
    assert list(app.pipelines) == ["door", "yard"]
    with pytest.raises(AppError, match=r"^pipeline door: declared twice; give one of them another name=$"):
        app.pipeline()(door)
    with pytest.raises(
        AppError, match=r"^pipeline takes_one: it must be a plain function without parameters$"
    ):

        @app.pipeline()
        def takes_one(value):
            return value

    with pytest.raises(AppError, match=r"goes on a plain function, not on type$"):
        app.pipeline()(type("Model", (), {}))
    with pytest.raises(AppError, match=r"^pipeline door: there is no argument nam; did you mean name\?$"):
        app.pipeline(nam="x")(door)
    with pytest.raises(AppError, match=r"^pipeline door: name must be letters"):
        app.pipeline(name="two words")(door)
