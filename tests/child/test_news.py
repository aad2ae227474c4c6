"""What a running handler says leaves the child at once, and before the end of its item."""

import json
import signal

from forebay.child.line import PARTS_BYTES_MAX, PARTS_S, QUIET_S
from forebay.child.parts import PART_BYTES_MAX
from tests.child.harness import in_child, items, run_all

WORDS = """
@app.task()
def words(n: int):
    for number in range(n):
        yield f"word{number}"

@app.task()
def slowly(go: str):
    for number in range(5):
        yield number
        while not os.path.exists(go):
            time.sleep(0.005)

@app.task()
async def later(go: str):
    for number in range(5):
        yield number
        while not os.path.exists(go):
            await asyncio.sleep(0.005)
"""


def parts_of(seen, tag):
    """Return the parts of one item; they come in order and without a hole."""
    found = [(number, text) for its, number, text in seen.parts if its == tag]
    assert [number for number, _ in found] == list(range(len(found)))
    return [json.loads(text) if text else None for _, text in found]


def test_parts_arrive_before_the_end_and_are_the_result(tmp_path):
    seen = run_all(tmp_path, WORDS, "words", [3, 0, 500])
    assert seen.outputs() == [[f"word{n}" for n in range(count)] for count in (3, 0, 500)]
    for tag, output in enumerate(seen.outputs()):
        assert parts_of(seen, tag) == output


def test_a_part_does_not_wait_for_the_next_one(tmp_path):
    for task in ("slowly", "later"):
        go = tmp_path / f"{task} may go on"

        async def doing(replica, watcher, task=task, go=go):
            replica.run(1, task, items(str(go)), singles=True)
            await watcher.until(lambda: watcher.parts)
            assert (parts_of(watcher, 0), watcher.results) == ([0], {})
            go.touch()
            await watcher.finished(1)
            assert parts_of(watcher, 0) == [0, 1, 2, 3, 4] == watcher.outputs()[0]

        in_child(tmp_path, WORDS, doing, task)


def test_parts_that_come_fast_travel_together(tmp_path, monkeypatch):
    frames = []
    source = "@app.task()\ndef many(n: int):\n    for i in range(n):\n        yield i\n"

    async def doing(replica, watcher):
        heard = watcher.on_news
        watcher.on_news = lambda replica, news: (frames.append(len(news.items)), heard(replica, news))
        replica.run(1, "many", items(20_000), singles=True)
        await watcher.finished(1)

    seen = in_child(tmp_path, source, doing, "many")
    assert len(parts_of(seen, 0)) == 20_000
    travelled = sum(len(text) for _, _, text in seen.parts)
    most = seen.busy_s * (1 / PARTS_S + 1 / QUIET_S) + travelled / PARTS_BYTES_MAX + 3
    assert len(frames) <= most and len(frames) < 20_000 / 10, frames


def test_each_item_of_a_batch_has_its_own_parts(tmp_path):
    source = """
    @app.task(batch_max=4)
    class Spell:
        def predict(self, items: list[str]):
            for place in range(3):
                for index, text in enumerate(items):
                    yield index, text[place]
    """
    seen = run_all(tmp_path, source, "Spell", ["abc", "def"], singles=False)
    assert seen.outputs() == [["a", "b", "c"], ["d", "e", "f"]]
    assert (parts_of(seen, 0), parts_of(seen, 1)) == (["a", "b", "c"], ["d", "e", "f"])


def test_an_output_in_parts_is_bounded_as_any_other_and_stops_at_its_bound(tmp_path):
    source = "@app.task()\ndef endless(x):\n    while True:\n        yield 'x' * 1000\n"
    seen = run_all(tmp_path, source, "endless", [1], result_bytes_max=50_000)
    assert seen.outputs() == ["result_too_large"]
    assert sum(len(text) for _, _, text in seen.parts) <= 50_000


def test_an_endless_batch_ends_when_nobody_in_it_can_have_a_result(tmp_path):
    source = """
    @app.task(batch_max=4)
    class Endless:
        def predict(self, items: list[int]):
            while True:
                for index in range(len(items)):
                    yield index, "x" * 1000
    """
    seen = run_all(tmp_path, source, "Endless", [1, 2], singles=False, result_bytes_max=5_000)
    assert seen.outputs() == ["too_many_parts"] * 2


def test_a_part_that_is_not_json_fails_its_item_and_says_which(tmp_path):
    source = "@app.task()\ndef odd(x):\n    yield 1\n    yield {'a': float('nan')}\n    yield 3\n"
    seen = run_all(tmp_path, source, "odd", [1])
    assert seen.outputs() == ["result_not_json"] and seen.results[0].permanent
    assert (
        seen.results[0].error.message == "odd: part 1 of the output is not JSON: a is nan, which is not JSON"
    )


def test_a_part_too_large_to_travel_is_in_the_result(tmp_path):
    source = f"@app.task()\ndef big(x):\n    yield 'a'\n    yield 'b' * {PART_BYTES_MAX}\n    yield 'c'\n"
    seen = run_all(tmp_path, source, "big", [1])
    assert parts_of(seen, 0) == ["a", None, "c"]
    assert seen.outputs()[0][1] == "b" * PART_BYTES_MAX


def test_a_generator_that_is_not_walked_to_its_end_is_closed(tmp_path):
    source = f"""
    @app.task()
    def tidy(x):
        try:
            while True:
                yield "x" * 1000
        finally:
            open({str(tmp_path / "closed")!r}, "w").close()
    """
    run_all(tmp_path, source, "tidy", [1], result_bytes_max=5_000)
    assert (tmp_path / "closed").exists()


SAVING = """
@app.task()
def saving(x, ctx: Context):
    before = ctx.checkpoint
    for page in range(x["pages"]):
        ctx.checkpoint = {"page": page}
        if page == x.get("die"):
            os.kill(os.getpid(), 9)
        time.sleep(x["s"])
    return [before, ctx.checkpoint]

@app.task()
def wrong(x, ctx: Context):
    ctx.checkpoint = "good"
    try:
        ctx.checkpoint = {"set": {1}} if x == 1 else "x" * 70_000
    except ValueError as error:
        return [str(error), ctx.checkpoint]

@app.task(batch_max=4)
class Both:
    def predict(self, items: list[int], ctx: Context):
        ctx.checkpoint = [len(items)]
        return items

@app.task(batch_max=4)
class Each:
    def predict(self, items: list[int], contexts: list[Context]):
        for item, ctx in zip(items, contexts):
            ctx.checkpoint = (ctx.checkpoint or 0) + item
        return items
"""


def test_a_checkpoint_leaves_before_the_next_instruction_can_kill_the_process(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "saving", items({"pages": 9, "s": 0.1, "die": 4}), singles=True)
        await watcher.until(lambda: watcher.deaths)
        assert watcher.deaths[0].signal_name == signal.Signals.SIGKILL.name
        assert json.loads(watcher.checkpoints[-1][1]) == {"page": 4}

    in_child(tmp_path, SAVING, doing)


def test_checkpoints_that_come_fast_travel_together_and_the_newest_stays(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "saving", items({"pages": 20_000, "s": 0}), singles=True)
        await watcher.finished(1)

    seen = in_child(tmp_path, SAVING, doing)
    assert json.loads(seen.checkpoints[-1][1]) == {"page": 19_999}
    assert len(seen.checkpoints) < 2_000  # one for each pause between two, however slow the machine is
    assert seen.outputs() == [[None, {"page": 19_999}]]


def test_a_checkpoint_of_an_earlier_attempt_is_given_back(tmp_path):
    async def doing(replica, watcher):
        (item,) = items({"pages": 1, "s": 0})
        replica.run(1, "saving", [item._replace(checkpoint=b'{"page":6}')], singles=True)
        await watcher.finished(1)

    assert in_child(tmp_path, SAVING, doing).outputs() == [[{"page": 6}, {"page": 0}]]


def test_a_wrong_checkpoint_is_refused_with_its_rule_and_the_old_one_stays(tmp_path):
    seen = run_all(tmp_path, SAVING, "wrong", [1, 2])
    (not_json, kept), (too_large, kept_too) = seen.outputs()
    assert not_json.startswith("checkpoint: must be JSON: ") and "set" in not_json
    assert too_large.startswith("checkpoint: 70,002 bytes of JSON, at most 65,536 are kept")
    assert (kept, kept_too) == ("good", "good")


def test_a_batch_saves_for_all_or_for_each(tmp_path):
    seen = run_all(tmp_path, SAVING, "Both", [1, 2], singles=False)
    assert dict(seen.checkpoints) == {0: b"[2]", 1: b"[2]"}

    async def doing(replica, watcher):
        one, two = items(1, 2)
        replica.run(1, "Each", [one._replace(checkpoint=b"10"), two], singles=False)
        await watcher.finished(2)

    assert dict(in_child(tmp_path, SAVING, doing, "Each").checkpoints) == {0: b"11", 1: b"2"}
