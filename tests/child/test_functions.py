"""What a plain function may take, give and do in a child."""

import asyncio
import math
import signal

import pytest

from forebay.child.codec import NESTING_MAX
from forebay.server import limits
from tests.child.harness import in_child, items, run_all


def test_each_payload_gets_its_own_answer(tmp_path):
    seen = run_all(
        tmp_path, "@app.task()\ndef double(n: int) -> int:\n    return 2 * n\n", "double", [1, 2, 3]
    )
    assert seen.outputs() == [2, 4, 6]


def test_results_of_a_frame_come_back_grouped(tmp_path):
    seen = run_all(tmp_path, "@app.task()\ndef echo(x):\n    return x\n", "echo", list(range(200)))
    assert seen.outputs() == list(range(200))
    assert len(seen.groups) < 50


def test_a_payload_that_does_not_fit_fails_alone_and_for_good(tmp_path):
    seen = run_all(
        tmp_path, "@app.task()\ndef double(n: int) -> int:\n    return 2 * n\n", "double", [1, "x", 3]
    )
    assert seen.outputs() == [2, "invalid_payload", 6]
    assert seen.results[1].permanent


TYPES = """
import dataclasses, typing, msgspec, pydantic

class M(pydantic.BaseModel):
    n: int

class S(msgspec.Struct):
    n: int

@dataclasses.dataclass
class D:
    n: int

class T(typing.TypedDict):
    n: int

@app.task()
def model(x: M) -> M: return M(n=x.n + 1)
@app.task()
def models(x: list[M]) -> list[M]: return x
@app.task()
def struct(x: S) -> S: return S(n=x.n + 1)
@app.task()
def data(x: D) -> D: return D(n=x.n + 1)
@app.task()
def typed(x: T) -> T: return {"n": x["n"] + 1}
"""


def test_payloads_and_outputs_take_the_users_types(tmp_path):
    async def doing(replica, watcher):
        for number, task in enumerate(("model", "struct", "data", "typed")):
            sent = items({"n": 1}, {"n": "many"}, {}, first=3 * number)
            replica.run(number, task, sent, singles=True)
        await watcher.finished(12)

    seen = in_child(tmp_path, TYPES, doing)
    assert seen.outputs() == [{"n": 2}, "invalid_payload", "invalid_payload"] * 4


def test_models_inside_other_types_are_read_and_written(tmp_path):
    seen = run_all(tmp_path, TYPES, "models", [[{"n": 1}, {"n": 2}], [{"n": "x"}]])
    assert seen.outputs() == [[{"n": 1}, {"n": 2}], "invalid_payload"]


NOT_JSON = [
    ("float('nan')", "it is nan"),
    ("{'a': [1.0, float('inf')]}", "a[1] is inf"),
    ("{'a': None, 'b': float('-inf')}", "b is -inf"),
    ("b'bytes'", "bytes"),
    ("{'a': {'b': [0, b'x']}}", "a.b[1] is bytes"),
    ("{'a': {1, 2}}", "a is set"),
    ("object()", "object"),
    ("'\\ud800'", "Unicode"),
    ("(lambda x: x.append(x) or x)([])", "nested too deeply"),
    ("[b'x'] * 100", "[0] is bytes"),
    ("numpy.array([1.0, math.nan])", "[1] is nan"),
]


def test_an_output_that_is_not_json_fails_for_good_with_its_place(tmp_path):
    lines = "".join(f"    if n == {i}: return {text}\n" for i, (text, _) in enumerate(NOT_JSON))
    source = f"import numpy, math\n@app.task()\ndef f(n):\n{lines}"
    seen = run_all(tmp_path, source, "f", list(range(len(NOT_JSON))))
    for index, (_, words) in enumerate(NOT_JSON):
        result = seen.results[index]
        assert result.error.code == "result_not_json"
        assert result.permanent
        assert words in result.error.message


def test_null_true_tuples_and_dates_are_json(tmp_path):
    source = """
    import datetime
    @app.task()
    def f(x):
        return (None, True, 1.5, {"when": datetime.date(2026, 1, 2)}, 2**70)
    """
    assert run_all(tmp_path, source, "f", [1]).outputs() == [[None, True, 1.5, {"when": "2026-01-02"}, 2**70]]


def test_numpy_numbers_and_arrays_become_numbers(tmp_path):
    source = """
    import numpy
    @app.task()
    def f(x):
        some = {"a": numpy.float32(1.5), "b": numpy.arange(3)}
        return some | {"c": numpy.float64(2.5), "d": numpy.bool_(True)}
    """
    seen = run_all(tmp_path, source, "f", [1])
    assert seen.outputs() == [{"a": 1.5, "b": [0, 1, 2], "c": 2.5, "d": True}]


def test_an_output_above_the_limit_fails_for_good_and_names_it(tmp_path):
    seen = run_all(
        tmp_path, "@app.task()\ndef f(n):\n    return 'x' * n\n", "f", [90, 200], result_bytes_max=100
    )
    assert seen.outputs() == ["x" * 90, "result_too_large"]
    assert seen.results[1].permanent
    assert "100" in seen.results[1].error.message


def test_a_result_of_10_mb_arrives(tmp_path):
    seen = run_all(
        tmp_path,
        "@app.task()\ndef f(n):\n    return 'x' * n\n",
        "f",
        [10_000_000],
        result_bytes_max=20_000_000,
    )
    assert len(seen.outputs()[0]) == 10_000_000


def test_a_generator_gives_the_list_of_its_parts(tmp_path):
    source = "@app.task()\ndef f(n: int):\n    for i in range(n):\n        yield i\n"
    assert run_all(tmp_path, source, "f", [3, 0]).outputs() == [[0, 1, 2], []]


EXOTIC = [
    ("ValueError('plain')", "ValueError"),
    ("SystemExit(0)", "SystemExit"),
    ("KeyboardInterrupt()", "KeyboardInterrupt"),
    ("GeneratorExit()", "GeneratorExit"),
    ("StopIteration(3)", "StopIteration"),
    ("asyncio.CancelledError()", "CancelledError"),
    ("MemoryError()", "MemoryError"),
    ("BaseException('base')", "BaseException"),
    ("ExceptionGroup('several', [ValueError('a'), KeyError('b')])", "ExceptionGroup"),
    ("Rude()", "Rude"),
    ("Needy(1, 2)", "Needy"),
    ("ValueError('x' * 5_000_000)", "ValueError"),
    ("ValueError('\\ud800 lone')", "ValueError"),
    ("Locked()", "Locked"),
]


def test_no_exception_ends_the_child(tmp_path):
    lines = "".join(f"    if n == {i}: raise {text}\n" for i, (text, _) in enumerate(EXOTIC))
    source = f"""
import threading
class Rude(Exception):
    def __str__(self): raise RuntimeError("no text")
class Needy(Exception):
    def __init__(self, a, b): super().__init__()
class Locked(Exception):
    def __init__(self): self.lock = threading.Lock()
def deep(): return deep()
@app.task()
def f(n):
{lines}
    if n == 98: deep()
    if n == 99: sys.exit(0)
    return "alive"
"""
    payloads = [*range(len(EXOTIC)), 98, 99, 100]
    seen = run_all(tmp_path, source, "f", payloads)
    assert seen.outputs()[-1] == "alive"
    for index, (_, name) in enumerate(EXOTIC):
        error = seen.results[index].error
        assert error.type == name
        assert len(error.message) <= 4_000
        assert not seen.results[index].permanent
    assert seen.results[len(EXOTIC)].error.type == "RecursionError"
    assert seen.results[len(EXOTIC) + 1].error.type == "SystemExit"
    group = seen.results[8].error.message
    assert "ValueError: a" in group


def test_failures_say_whether_and_when_to_try_again(tmp_path):
    source = """
    @app.task(permanent_on=KeyError, backoff="1s")
    def f(n):
        if n == 0: raise Retry(after="7s")
        if n == 1: raise Permanent("never")
        if n == 2: return Failed("this one", permanent=True)
        if n == 3: raise Failed("later", after=3)
        if n == 4: raise KeyError("x")
        raise ValueError("x")
    """
    seen = run_all(tmp_path, source, "f", list(range(6)))
    told = [(seen.results[n].permanent, seen.results[n].after_s) for n in range(6)]
    assert told == [(False, 7.0), (True, None), (True, None), (False, 3.0), (True, None), (False, None)]


def test_retry_on_names_the_only_exceptions_worth_another_try(tmp_path):
    source = """
    @app.task(retry_on=(OSError, TimeoutError))
    def f(n):
        raise [OSError, ConnectionError, ValueError][n]("x")
    """
    seen = run_all(tmp_path, source, "f", [0, 1, 2])
    assert [seen.results[n].permanent for n in range(3)] == [False, False, True]


def test_a_handler_reads_its_context_and_reports_progress(tmp_path):
    source = """
    @app.task()
    def f(x, context: Context):
        for share in (0.1, 0.5, 1.0):
            context.progress(share, f"at {share}")
            time.sleep(0.12)
        return [context.job_id, context.attempt, context.deadline, context.cancelled]
    """
    seen = run_all(tmp_path, source, "f", [1])
    assert seen.outputs() == [["job-0", 1, None, False]]
    assert seen.reports[0] == (0, 0.1, "at 0.1")
    assert seen.reports[-1][1] == 1.0


def test_a_million_reports_become_a_few_messages(tmp_path):
    source = """
    @app.task()
    def f(x, context):
        for n in range(200_000):
            context.progress(n / 200_000)
        return 1
    """
    seen = run_all(tmp_path, source, "f", [1])
    assert 1 <= len(seen.reports) < 1_000


def test_a_share_outside_0_to_1_is_the_handlers_mistake(tmp_path):
    source = "@app.task()\ndef f(x, context):\n    context.progress(x)\n"
    seen = run_all(tmp_path, source, "f", [1.5, -1])
    assert [seen.results[n].error.type for n in (0, 1)] == ["ValueError", "ValueError"]


def test_a_cancelled_handler_sees_it_and_ends_early(tmp_path):
    source = """
    @app.task()
    def f(x, context):
        context.progress(0.5)
        while not context.cancelled:
            time.sleep(0.005)
        return "ended early"
    """

    async def doing(replica, watcher):
        replica.run(1, "f", items(1), singles=True)
        await watcher.until(lambda: watcher.reports)
        replica.cancel(0)
        await watcher.finished(1)

    assert in_child(tmp_path, source, doing, "f").outputs() == ["ended early"]


WAITING = """
@app.task()
def f(x, context):
    context.progress(0.5)
    while x and not context.cancelled:
        time.sleep(0.005)
    return x
"""


def test_a_cancelled_item_that_has_not_started_comes_back_and_never_starts(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "f", items(1, 0, 0), singles=True)
        replica.run(2, "f", items(0, 0, first=10), singles=True)
        await watcher.until(lambda: watcher.reports)
        replica.cancel(1)
        replica.cancel(11)
        await watcher.until(lambda: len(watcher.returned) == 2)
        replica.cancel(0)
        await watcher.finished(3)

    seen = in_child(tmp_path, WAITING, doing, "f")
    assert sorted(seen.returned) == [1, 11]
    assert sorted(seen.results) == [0, 2, 10]


def test_what_has_not_started_is_given_back_at_once(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "f", items(1, 0, 0), singles=True)
        replica.run(2, "f", items(0, 0, first=10), singles=True)
        await watcher.until(lambda: watcher.reports)
        replica.give_back()
        await watcher.until(lambda: watcher.returns)
        assert not watcher.results
        replica.cancel(0)
        await watcher.finished(1)
        replica.run(3, "f", items(0, first=20), singles=True)
        await watcher.finished(2)

    seen = in_child(tmp_path, WAITING, doing, "f")
    assert sorted(seen.returned) == [1, 2, 10, 11]
    assert sorted(seen.results) == [0, 20]


def test_a_finished_result_does_not_wait_for_the_slow_one_behind_it(tmp_path):
    source = """
    @app.task()
    def f(x, context):
        while x and not context.cancelled:
            time.sleep(0.005)
        return x
    """

    async def doing(replica, watcher):
        replica.run(1, "f", items(0, 1), singles=True)
        await watcher.finished(1)
        assert list(watcher.results) == [0]
        replica.cancel(1)
        await watcher.finished(2)

    in_child(tmp_path, source, doing, "f")


ASYNC = """
running = 0
most = 0
@app.task(concurrency=4)
async def f(x, context):
    global running, most
    running += 1
    most = max(most, running)
    try:
        await asyncio.sleep(0.05 if x >= 0 else 3600)
    finally:
        running -= 1
    return most
@app.task()
async def parts(n: int):
    for i in range(n):
        await asyncio.sleep(0)
        yield i
@app.task()
async def bad(n):
    raise [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, ValueError][n]("x")
@app.task()
def plain(x):
    return x + 1
"""


def test_async_handlers_run_side_by_side_up_to_their_concurrency(tmp_path):
    seen = run_all(tmp_path, ASYNC, "f", list(range(12)))
    assert max(seen.outputs()) == 4


def test_an_async_generator_gives_the_list_of_its_parts(tmp_path):
    assert run_all(tmp_path, ASYNC, "parts", [3]).outputs() == [[0, 1, 2]]


def test_no_exception_of_an_async_handler_ends_the_child(tmp_path):
    seen = run_all(tmp_path, ASYNC, "bad", list(range(5)))
    assert seen.outputs() == ["handler_failed"] * 3 + ["cancelled", "handler_failed"]


def test_a_cancelled_coroutine_is_cancelled_and_a_waiting_one_comes_back(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "f", items(*[-1] * 6), singles=True)
        replica.run(2, "plain", items(1, first=10), singles=True)
        await watcher.finished(1)
        replica.cancel(5)
        replica.cancel(0)
        await watcher.until(lambda: watcher.returned)
        await watcher.finished(2)
        replica.give_back()
        await watcher.until(lambda: watcher.returns == 2)

    seen = in_child(tmp_path, ASYNC, doing)
    assert seen.returned == [5]
    assert seen.results[10].output == b"2"
    assert seen.results[0].error.code == "cancelled"


def test_busy_time_is_the_time_inside_handlers(tmp_path):
    seen = run_all(tmp_path, "@app.task()\ndef f(x):\n    time.sleep(0.05)\n", "f", [1, 2])
    assert 0.1 <= seen.busy_s < 5
    assert math.isfinite(seen.busy_s)


def test_busy_time_of_plain_functions_is_told_beside_async_ones_too(tmp_path):
    """Untold, the node takes its own round trip for it, and on a busy machine sends one item at a time."""
    source = "@app.task()\ndef f(x):\n    time.sleep(0.05)\n@app.task()\nasync def g(x):\n    return x\n"

    async def plain(replica, watcher):
        replica.run(1, "f", items(1, 2), singles=True)
        await watcher.finished(2)

    async def several_at_once(replica, watcher):
        replica.run(1, "g", items(1, 2), singles=True)
        await watcher.finished(2)

    assert 0.1 <= in_child(tmp_path, source, plain).busy_s < 5
    assert in_child(tmp_path, source, several_at_once).busy_s == 0


def test_an_output_may_be_nested_as_deep_as_a_payload_and_no_deeper(tmp_path):
    source = """
    @app.task()
    def f(x):
        levels, inner = x
        for _ in range(levels - 1):
            inner = [inner]
        return inner
    """
    deep = "a text with " + "[{" * 200 + '"\\'
    given = [
        [NESTING_MAX, []],
        [NESTING_MAX, {}],
        [NESTING_MAX, [deep]],
        [NESTING_MAX + 1, []],
        [900, [deep]],
    ]
    seen = run_all(tmp_path, source, "f", given)
    assert [seen.results[i].error is None for i in range(5)] == [True, True, True, False, False]
    assert seen.results[4].error.code == "result_not_json"
    assert f"deeper than {NESTING_MAX} levels" in seen.results[4].error.message
    assert NESTING_MAX == limits.NESTING_MAX, "one rule on the way in and on the way out"


def test_a_pool_child_serves_all_plain_functions(tmp_path):
    source = """
    @app.task()
    def one(x): return 1
    @app.task()
    def two(x): return 2
    """

    async def doing(replica, watcher):
        replica.run(1, "one", items(0), singles=True)
        replica.run(2, "two", items(0, first=1), singles=True)
        await watcher.finished(2)

    assert in_child(tmp_path, source, doing).outputs() == [1, 2]


def test_stop_finishes_what_runs_and_returns_the_rest(tmp_path):
    go = tmp_path / "it may end"
    source = f"""
    @app.task()
    def f(x, context):
        context.progress(0.1)
        while not os.path.exists({str(go)!r}):
            time.sleep(0.005)
        return x
    """

    async def doing(replica, watcher):
        replica.run(1, "f", items(1, 2, 3), singles=True)
        await watcher.until(lambda: watcher.reports)
        stopping = asyncio.ensure_future(replica.stop(30))
        await watcher.until(lambda: watcher.returned)
        go.touch()
        death = await asyncio.wait_for(stopping, 30)
        assert death.code == "stopped"

    seen = in_child(tmp_path, source, doing, "f")
    assert seen.outputs() == [1]
    assert sorted(seen.returned) == [1, 2]


def test_a_whole_float_is_an_integer_for_the_child_as_for_the_door(tmp_path):
    async def doing(replica, watcher):
        for number, task in enumerate(("model", "struct", "data", "typed")):
            replica.run(number, task, items({"n": 1.0}, {"n": 1.5}, first=2 * number), singles=True)
        await watcher.finished(8)

    seen = in_child(tmp_path, TYPES, doing)
    assert seen.outputs() == [{"n": 2}, "invalid_payload"] * 4


UNFIT = """
import dataclasses, typing, msgspec, pydantic

class S(msgspec.Struct):
    n: int

class M(pydantic.BaseModel):
    n: int

@dataclasses.dataclass
class D:
    n: int

GIVEN = {"whole": 1.0, "half": 1.5, "text": "1", "bad": S("many"), "good": S(2), "none": None, "data": D(1), "odd": D("x"),
         "model": M(n=1), "dict": {"n": 1}, "wrong": {"m": 1}}

def task(name, kind):
    def f(x: str): return GIVEN[x]
    f.__annotations__["return"] = kind
    app.task(name=name)(f)

for name, kind in {"int": int, "S": S, "D": D, "M": M, "text": typing.Optional[str]}.items():
    task(name, kind)
@app.task()
def whatever(x: str): return GIVEN[x]
@app.task()
def parts(x: str) -> typing.Iterator[int]: yield GIVEN[x]
@app.task()
async def later(x: str) -> int: return GIVEN[x]
"""
NO = "invalid_result"
FITS = [
    ("int", ["whole", "half", "text", "none"], [1.0, NO, NO, NO]),
    ("S", ["good", "bad", "dict", "wrong"], [{"n": 2}, NO, {"n": 1}, NO]),
    ("D", ["data", "odd", "good"], [{"n": 1}, NO, {"n": 2}]),
    ("M", ["model", "dict", "wrong", "good"], [{"n": 1}, {"n": 1}, NO, NO]),
    ("text", ["text", "none", "half"], ["1", None, NO]),
    ("whatever", ["half", "bad"], [1.5, {"n": "many"}]),
    ("parts", ["whole", "text"], [[1.0], NO]),
    ("later", ["whole", "text"], [1.0, NO]),
]


def test_an_output_that_its_annotation_does_not_allow_fails_alone_and_for_good(tmp_path):
    async def doing(replica, watcher):
        for number, (task, names, _) in enumerate(FITS):
            replica.run(number, task, items(*names, first=10 * number), singles=True)
        await watcher.finished(sum(len(names) for _, names, _ in FITS))

    seen = in_child(tmp_path, UNFIT, doing)
    assert seen.outputs() == [output for _, _, outputs in FITS for output in outputs]
    wrong = [result for result in seen.results.values() if result.error is not None]
    assert wrong and all(result.permanent for result in wrong)
    assert (
        "int: the output does not fit its annotation: Expected `int`, got `float`" in wrong[0].error.message
    )


ENDLESS = """
import itertools
@app.task()
def endless(x: int):
    yield from itertools.count() if x else range(100_000)
@app.task(concurrency=2)
async def later(x: int):
    for n in itertools.count() if x else range(100_000):
        yield n
"""


@pytest.mark.parametrize("task", ["endless", "later"])
def test_a_generator_without_end_is_said_and_fails_for_good(tmp_path, task):
    seen = run_all(tmp_path, ENDLESS, task, [1, 0], result_bytes_max=1 << 20)
    assert seen.outputs() == ["too_many_parts", list(range(100_000))]
    assert seen.results[0].permanent and "100,000 parts" in seen.results[0].error.message


POOLED = """
import multiprocessing

@app.task()
def pooled(n: int) -> int:
    with multiprocessing.get_context("fork").Pool(2) as pool:  # its end is a SIGTERM to each, and a wait
        return sum(pool.map(abs, range(-n, 0)))

@app.task()
def heard(number: int) -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    os.kill(child, number)
    return os.WTERMSIG(os.waitpid(child, 0)[1])
"""


def test_what_a_function_forks_can_be_ended_by_a_signal(tmp_path):
    assert run_all(tmp_path, POOLED, "pooled", [3, 4]).outputs() == [6, 10]
    assert run_all(tmp_path, POOLED, "heard", [signal.SIGTERM]).outputs() == [signal.SIGTERM]


def test_the_traceback_of_a_failure_begins_in_the_code_of_its_user(tmp_path):
    lines = []

    async def doing(replica, watcher):
        replica.run(0, "fails", items(1), singles=True)
        await watcher.until(lambda: any("ZeroDivisionError" in line for line in replica.log.lines()))
        lines.extend(replica.log.lines())

    in_child(tmp_path, "@app.task()\ndef fails(x):\n    return 1 // 0\n", doing, "fails")
    assert lines[0].startswith("Traceback") and "in fails" in lines[1]
    assert not [line for line in lines if "forebay/child" in line]
