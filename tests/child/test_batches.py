"""Batched predict: N in, N out, each failure with whom it belongs to."""

import pytest

from tests.child.harness import in_child, items, run_all

HALVES = """
calls = []
@app.task(batch_max=64)
class Model:
    def load(self, device):
        self.device = str(device)
    def predict(self, xs: list):
        if any(x == "calls" for x in xs):
            return [list(calls) for _ in xs]
        calls.append(len(xs))
        if any(x == "bad" for x in xs):
            raise ValueError("a bad value is in here")
        return [x for x in xs]
"""


def test_a_batch_is_one_call(tmp_path):
    source = """
    @app.task(batch_max=8)
    class Model:
        def load(self, device: Device) -> None:
            self.name = str(device)
        def warm_up(self):
            self.warm = True
        def predict(self, xs: list[int]) -> list[list]:
            return [[x, len(xs), self.name, self.warm] for x in xs]
    """
    seen = run_all(tmp_path, source, "Model", [1, 2, 3], singles=False)
    assert seen.outputs() == [[n, 3, "cpu", True] for n in (1, 2, 3)]
    assert seen.groups == [3]


def test_suspects_are_called_one_by_one(tmp_path):
    seen = run_all(tmp_path, HALVES, "Model", ["a", "bad", "c", "calls"], singles=True)
    assert seen.outputs() == ["a", "handler_failed", "c", [1, 1, 1]]
    assert seen.passes == []


@pytest.mark.parametrize("place", [0, 4, 5, 7])
def test_one_bad_item_of_eight_costs_at_most_four_more_calls_and_no_neighbour(tmp_path, place):
    payloads = ["good"] * 8
    payloads[place] = "bad"
    seen = run_all(tmp_path, HALVES, "Model", payloads, singles=False)
    assert seen.outputs() == ["handler_failed" if x == "bad" else "good" for x in payloads]
    assert len(seen.passes) <= 4
    assert seen.results[place].error.message == "a bad value is in here"


def test_several_bad_items_fail_and_every_good_one_succeeds(tmp_path):
    payloads = ["bad" if n % 7 == 0 else n for n in range(64)]
    seen = run_all(tmp_path, HALVES, "Model", payloads, singles=False)
    assert seen.outputs() == ["handler_failed" if x == "bad" else x for x in payloads]
    assert len(seen.passes) < 2 * 64


def test_items_that_fail_only_together_succeed_or_are_to_be_run_alone(tmp_path):
    source = """
    @app.task(batch_max=8)
    class Model:
        def predict(self, xs: list[str]) -> list[int]:
            if len({len(x) for x in xs}) > 1:
                raise ValueError("lengths differ")
            return [len(x) for x in xs]
    """
    seen = run_all(tmp_path, source, "Model", ["xxx", "x" * 7, "x" * 7, "x" * 512], singles=False)
    for n, length in enumerate((3, 7, 7, 512)):
        result = seen.results[n]
        assert result.output == str(length).encode() or (result.alone and not result.permanent)


def test_a_batch_that_must_not_be_split_fails_as_a_whole(tmp_path):
    source = HALVES.replace("batch_max=64", "batch_max=64, split=False")
    seen = run_all(tmp_path, source, "Model", ["good", "bad"], singles=False)
    assert seen.outputs() == ["handler_failed"] * 2
    assert seen.passes == []
    assert all(result.alone for result in seen.results.values())


def test_a_handler_that_changes_its_items_gets_them_fresh_when_a_batch_is_split(tmp_path):
    source = """
    @app.task(batch_max=8)
    class Model:
        def predict(self, xs: list):
            for x in xs:
                x["seen"] = x.get("seen", 0) + 1
            if len(xs) > 1:
                raise ValueError
            return [x["seen"] for x in xs]
    """
    seen = run_all(tmp_path, source, "Model", [{}, {}], singles=False)
    assert seen.outputs() == [1, 1]


WRONG = [
    "xs[:-1]",
    "xs + xs",
    "[]",
    "None",
    "{0: 1, 1: 2, 2: 3}",
    "'abc'",
    "(x for x in xs)",
    "{1, 2, 3}",
    "3",
]


def test_an_answer_of_the_wrong_count_or_kind_is_nobodys_answer(tmp_path):
    lines = "".join(f"        if kind == {i}: return {text}\n" for i, text in enumerate(WRONG))
    source = "@app.task(batch_max=8)\nclass Model:\n    def predict(self, xs: list):\n        kind = xs[0]\n"
    source += lines

    async def doing(replica, watcher):
        for kind in range(len(WRONG)):
            replica.run(kind, "Model", items(kind, kind, kind, first=3 * kind), singles=False)
        await watcher.finished(3 * len(WRONG))

    seen = in_child(tmp_path, source, doing, "Model")
    assert seen.outputs() == ["wrong_output_count"] * 3 * len(WRONG)
    assert all(result.permanent for result in seen.results.values())
    assert seen.passes == []


def test_failed_in_place_of_an_output_fails_that_item_alone(tmp_path):
    source = """
    @app.task(batch_max=8)
    class Model:
        def predict(self, xs: list[int]) -> list[int | Failed]:
            out = list(xs)
            out[1] = Failed("no face in it", permanent=True)
            out[2] = ValueError("an exception object")
            return out
    """
    seen = run_all(tmp_path, source, "Model", [0, 1, 2, 3], singles=False)
    assert seen.outputs() == [0, "handler_failed", "handler_failed", 3]
    assert seen.results[1].error.message == "no face in it"
    assert (seen.results[1].permanent, seen.results[2].permanent) == (True, False)


def test_one_output_that_is_not_json_fails_that_item_alone(tmp_path):
    source = "@app.task(batch_max=8)\nclass Model:\n    def predict(self, xs):\n        return [1, b'x', 3]\n"
    seen = run_all(tmp_path, source, "Model", [0, 1, 2], singles=False)
    assert seen.outputs() == [1, "result_not_json", 3]


def test_a_payload_that_does_not_fit_never_reaches_the_batch(tmp_path):
    source = """
    @app.task(batch_max=8)
    class Model:
        def predict(self, xs: list[int]) -> list[int]:
            return [len(xs)] * len(xs)
    """
    seen = run_all(tmp_path, source, "Model", [0, "x", 2], singles=False)
    assert seen.outputs() == [2, "invalid_payload", 2]


def test_retry_raised_from_a_batch_is_the_answer_for_all_of_it(tmp_path):
    source = (
        "@app.task(batch_max=8)\nclass Model:\n    def predict(self, xs):\n        raise Retry(after=9)\n"
    )
    seen = run_all(tmp_path, source, "Model", [0, 1], singles=False)
    assert [seen.results[n].after_s for n in (0, 1)] == [9.0, 9.0]
    assert seen.passes == []


def test_exit_in_a_batch_fails_it_and_the_child_lives(tmp_path):
    source = "@app.task(batch_max=8)\nclass Model:\n    def predict(self, xs):\n        sys.exit(0)\n"
    seen = run_all(tmp_path, source, "Model", [0, 1], singles=False)
    assert seen.outputs() == ["handler_failed"] * 2


def test_a_batched_generator_gives_parts_by_index(tmp_path):
    source = """
    @app.task(batch_max=8)
    class Model:
        def predict(self, xs: list[int]):
            for index, x in enumerate(xs):
                for part in range(x):
                    yield index, part
            yield 2, Failed("the third")
    @app.task(batch_max=8)
    class Lost:
        def predict(self, xs):
            yield 9, "whose?"
    """
    seen = run_all(tmp_path, source, "Model", [2, 0, 1], singles=False)
    assert seen.outputs() == [[0, 1], [], "handler_failed"]
    assert run_all(tmp_path, source, "Lost", [1, 1], singles=False).outputs() == ["wrong_output_count"] * 2


def test_each_item_of_a_batch_has_its_context(tmp_path):
    source = """
    @app.task(batch_max=8)
    class Model:
        def predict(self, xs: list[int], contexts: list[Context]):
            for context in contexts:
                context.progress(0.5, context.job_id)
            return [context.job_id for context in contexts]
    """
    seen = run_all(tmp_path, source, "Model", [0, 1], singles=False)
    assert seen.outputs() == ["job-0", "job-1"]


def test_an_async_predict_is_awaited_split_and_loaded_on_one_loop(tmp_path):
    source = """
    @app.task(batch_max=8)
    class Model:
        async def load(self, device):
            self.loop = asyncio.get_running_loop()
        async def predict(self, xs: list) -> list:
            await asyncio.sleep(0)
            assert self.loop is asyncio.get_running_loop()
            if "bad" in xs:
                raise ValueError("bad")
            return xs
    """
    seen = run_all(tmp_path, source, "Model", [0, "bad", 2, 3], singles=False)
    assert seen.outputs() == [0, "handler_failed", 2, 3]
    assert len(seen.passes) <= 3


OVERFLOW = """
import itertools, typing
@app.task(batch_max=4)
class Parts:
    def predict(self, items: list[str]) -> typing.Iterator[tuple[int, int]]:
        for index, item in enumerate(items):
            for n in itertools.count() if item == "endless" else range(100_001 if item == "over" else 2):
                yield index, n

@app.task(batch_max=4)
class Typed:
    def predict(self, items: list[object]) -> list[int | Failed]:
        return items
"""


def test_one_item_with_too_many_parts_fails_alone(tmp_path):
    seen = run_all(tmp_path, OVERFLOW, "Parts", ["a", "over", "b"], singles=False)
    assert seen.outputs() == [[0, 1], "too_many_parts", [0, 1]]
    assert seen.passes == []


def test_one_item_with_parts_without_end_is_found_and_fails_for_good(tmp_path):
    seen = run_all(tmp_path, OVERFLOW, "Parts", ["a", "endless", "b"], singles=False)
    assert seen.outputs() == [[0, 1], "too_many_parts", [0, 1]]
    assert seen.results[1].permanent


def test_one_output_of_a_batch_that_is_of_another_type_fails_alone(tmp_path):
    seen = run_all(tmp_path, OVERFLOW, "Typed", [1, "x", 3.0], singles=False)
    assert seen.outputs() == [1, "invalid_result", 3.0]
