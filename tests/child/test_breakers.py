"""What breakers in a child do: their states reach the node, and a job that meets an open one goes back."""

from forebay.node.frames import Breakers
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
        assert watcher.told == [("features", "closed", 0, 0.0, "")]
        replica.run(1, "look_up", items("bad", "bad"), singles=True)
        await watcher.finished(2)
        await watcher.until(lambda: len(watcher.told) > 1)

    seen = in_child(tmp_path, SOURCE, doing, "look_up", watcher=BreakerWatcher())
    name, state, trips, wait_s, reason = seen.told[1]
    assert (name, state, trips, reason) == ("features", "open", 1, "2 bad calls within 60 s")
    assert 0 < wait_s <= 30.0


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
