"""What breakers in a child do: their states reach the node, and a job that meets an open one goes back."""

import pytest

from forebay.node.frames import Breakers, ToldBreaker
from tests.child.harness import Watcher, in_child, items, run_all

SOURCE = """
features = forebay.Breaker("features", failures=2, window="60s", open_for="30s")

@app.task()
def look_up(key):
    with features:
        if key == "bad":
            raise ConnectionError("the store is away")
        return key

@app.task(batch_max=4)
class Rank:
    def predict(self, keys):
        with features:
            if "bad" in keys:
                raise ConnectionError("the store is away")
        return keys
"""


class BreakerWatcher(Watcher):
    def __init__(self):
        super().__init__()
        self.told = []

    def on_news(self, replica, news):
        if isinstance(news, Breakers):
            self.told += news.items
            self._news.set()
        else:
            super().on_news(replica, news)


def test_the_node_hears_of_every_named_breaker_and_of_its_changes(tmp_path):
    async def doing(replica, watcher):
        await watcher.until(lambda: watcher.told)
        assert watcher.told == [("features", "closed", 0, 0.0, "", (), False, False)]
        replica.run(1, "look_up", items("bad", "bad"), singles=True)
        await watcher.finished(2)
        await watcher.until(lambda: len(watcher.told) > 2)

    seen = in_child(tmp_path, SOURCE, doing, "look_up", watcher=BreakerWatcher())
    _, used, opened = seen.told
    assert (used.state, used.tasks) == ("closed", ("look_up",))
    assert opened[:3] == ("features", "open", 1) and opened.reason == "2 bad calls within 60 s"
    assert 0 < opened.wait_s <= 30.0


USES = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
features = forebay.Breaker("features")

def fetch(key):
    with features:
        return key

@app.task()
def plain(key):
    return fetch(key)

@app.task()
async def slow(key):
    return await asyncio.to_thread(fetch, key)

@app.task(batch_max=4)
class InThreads:
    def predict(self, keys):
        return list(pool.map(fetch, keys))

@app.task()
class Loads:
    def load(self):
        fetch("all")

    def predict(self, keys):
        return keys
"""


@pytest.mark.parametrize("tasks", [("plain",), ("plain", "slow"), ("InThreads",), ("Loads",)])
def test_the_node_hears_for_which_tasks_a_breaker_is_used(tmp_path, tasks):
    async def doing(replica, watcher):
        for number, task in enumerate(tasks):
            replica.run(number, task, items("a", first=number), singles=True)
        await watcher.finished(len(tasks))
        await watcher.until(lambda: watcher.told[-1].tasks == tasks)

    in_child(tmp_path, USES, doing, *tasks, watcher=BreakerWatcher())


def test_a_shared_one_does_as_the_node_tells_and_says_that_it_was_told(tmp_path):
    source = SOURCE.replace('open_for="30s"', 'open_for="30s", shared=True')

    async def doing(replica, watcher):
        replica.tell(ToldBreaker("features", "open", 20.0, "2 bad calls within 60 s"))
        await watcher.until(lambda: watcher.told and watcher.told[-1].told)
        replica.run(1, "look_up", items("good"), singles=True)
        await watcher.finished(1)
        replica.tell(ToldBreaker("features", "closed", 0.0, "the probe went well"))
        await watcher.until(lambda: watcher.told[-1].state == "closed")
        replica.run(2, "look_up", items("good", first=1), singles=True)
        await watcher.finished(2)

    seen = in_child(tmp_path, source, doing, "look_up", watcher=BreakerWatcher())
    assert seen.outputs() == ["breaker_open", "good"]
    assert all(one.shared for one in seen.told)


def test_a_job_that_meets_an_open_breaker_goes_back_uncharged_until_it_may_try(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "look_up", items("bad", "bad", "good"), singles=True)
        await watcher.finished(3)

    result = in_child(tmp_path, SOURCE, doing, "look_up").results[2]
    assert result.error.code == "breaker_open"
    assert result.uncharged
    assert not result.permanent
    assert 0 < result.after_s <= 30.0


def test_a_batch_that_meets_an_open_breaker_goes_back_as_a_whole_and_is_not_halved(tmp_path):
    async def doing(replica, watcher):
        replica.run(1, "look_up", items("bad", "bad"), singles=True)
        await watcher.finished(2)
        replica.run(2, "Rank", items("a", "b", "c", first=2), singles=False)
        await watcher.finished(5)

    seen = in_child(tmp_path, SOURCE, doing, "look_up", "Rank")
    assert [seen.results[tag].error.code for tag in (2, 3, 4)] == ["breaker_open"] * 3
    assert seen.passes == []


def test_a_handler_knows_whose_job_it_works_on(tmp_path):
    source = "@app.task()\ndef whose(x, context):\n    return context.tenant\n"
    asked = [item._replace(tenant=tenant) for item, tenant in zip(items(1, 2), ("acme", ""), strict=True)]
    assert run_all(tmp_path, source, "whose", asked).outputs() == ["acme", ""]
