"""Variants in a child: one process holds them all, and each run says by which of them it is made."""

import pytest

from tests.child.harness import in_child, items

SOURCE = """
class Small:
    def load(self, device):
        self.loaded = device.kind

    def predict(self, items: list[int], context: Context) -> list[str]:
        return [f"small {item} {self.loaded} {context.level}" for item in items]

@app.task(batch_max=4, variants=[Small, forebay.Variant(name="half")])
class Large:
    def load(self):
        self.loads = getattr(Large, "loads", 0) + 1
        Large.loads = self.loads

    def predict(self, items: list[int], contexts: list[Context]) -> list[str]:
        return [f"large {item} {self.loads} {context.level}" for item, context in zip(items, contexts)]

def brief(item: int) -> int:
    return -item

@app.task(variants=[brief])
def plain(item: int) -> int:
    return item

async def soon(item: int) -> str:
    return f"soon {item}"

@app.task(variants=[soon])
async def later(item: int, context: Context) -> str:
    return f"later {item} {context.level}"
"""


def ran(tmp_path, task, *runs, singles=True, source=SOURCE):
    """Return the outputs of runs (level, payloads), one after the other."""

    async def doing(replica, watcher):
        first = 0
        for number, (level, payloads) in enumerate(runs, 1):
            sent = items(*payloads, first=first)
            first += len(sent)
            assert replica.run(number, task, sent, singles=singles, level=level)
        await watcher.finished(first)

    return in_child(tmp_path, source, doing, task).outputs()


def test_a_batch_is_made_by_the_variant_that_the_run_names(tmp_path):
    assert ran(tmp_path, "Large", (0, [1, 2]), (1, [3]), (2, [4]), (0, [5]), singles=False) == [
        "large 1 1 0",
        "large 2 1 0",
        "small 3 cpu 1",
        "large 4 1 2",  # the task's own handler, loaded once, that reads its level
        "large 5 1 0",
    ]


@pytest.mark.parametrize(
    ("task", "outputs"), [("plain", [1, -2, 3]), ("later", ["later 1 0", "soon 2", "later 3 0"])]
)
def test_a_function_is_run_by_its_variants_too(tmp_path, task, outputs):
    assert ran(tmp_path, task, (0, [1]), (1, [2]), (0, [3])) == outputs


def test_a_bad_item_of_a_variant_fails_alone_and_a_wrong_output_says_so(tmp_path):
    source = """
class Small:
    def predict(self, items):
        if 13 in items:
            raise ValueError("13")
        return ["text" if item == 7 else item for item in items]

@app.task(batch_max=4, variants=[Small])
class Large:
    def predict(self, items: list[int]) -> list[int]:
        return items
"""
    outputs = ran(tmp_path, "Large", (1, [1, 13, 2, 7]), (0, [13]), singles=False, source=source)
    assert outputs[0] == 1 and outputs[2] == 2 and outputs[4] == 13
    assert outputs[1] == "handler_failed" and isinstance(outputs[3], str) and outputs[3] != "text"


def test_a_variant_that_cannot_load_keeps_the_process_from_serving_and_is_named(tmp_path):
    source = """
class Small:
    def load(self):
        raise OSError("no such weights")
    def predict(self, items):
        return items

@app.task(batch_max=4, variants=[Small])
class Large:
    def predict(self, items):
        return items
"""

    async def doing(replica, watcher):
        await watcher.until(lambda: watcher.deaths)

    (death,) = in_child(tmp_path, source, doing, "Large").deaths
    assert "Large: variant Small: load failed with OSError: no such weights" in death.message
