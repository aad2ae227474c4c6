"""Must type-check: the public face as users write it. Never run; `./test lane types` reads it."""

from dataclasses import dataclass
from typing import assert_type

import forebay

app = forebay.App()


@dataclass
class Page:
    url: str


@app.task(batch_max=16, batch_wait="20ms", timeout="10m", attempts_max=3, ttl="6h", priority="high")
class Read:
    """Text of a page."""

    def load(self, device: forebay.Device) -> None:
        self.name = str(device)

    def predict(self, items: list[Page], contexts: list[forebay.Context]) -> list[str | forebay.Failed]:
        contexts[0].progress(0.5, "half")
        assert_type(contexts[0].cancelled, bool)
        assert_type(contexts[0].deadline, float | None)
        return [forebay.Failed("no url", permanent=True) if not item.url else item.url for item in items]


@app.task(retry_on=(OSError,), permanent_on=(ValueError,))
def echo(text: str) -> str:
    if not text:
        raise forebay.Permanent("nothing to say")
    if text == "later":
        raise forebay.Retry(after="5s")
    return text


@app.task(concurrency=8)
async def wait_and_echo(text: str) -> str:
    return text


# The decorator gives back what it was given: a task stays callable in the user's own tests.
assert_type(echo("hello"), str)
reader: Read = Read()


def use() -> None:
    """Submit, wait, map, as a program that blocks does."""
    with forebay.Client("http://127.0.0.1:8080") as client:
        job = client.submit("Read", {"url": "x"}, priority="high", idempotency_key="clip-17", ttl="1h")
        assert_type(job.job_id, str)
        assert_type(job.eta, forebay.ETA | None)
        try:
            job.result(timeout="5m")
        except forebay.JobFailedError as error:
            assert_type(error.job_id, str)
        except forebay.ForebayError as error:
            assert_type(error.retry_after_s, float | None)
        for _ in client.map("Read", [{"url": "x"}], rate="300/s"):
            pass
        assert_type(client.wait_headroom("Read", 200, timeout="5m"), bool)
        assert_type(client.announce("Read", 1200).rate_per_s, float | None)
        assert_type(client.cancel_many(task="Read", metadata={"run": "1"}), dict[str, int])


async def use_async() -> None:
    """Do the same on a loop."""
    async with forebay.AsyncClient("http://127.0.0.1:8080", budget="ci=300/s", backoff="batch") as client:
        job = await client.submit("Read", {"url": "x"})
        assert_type(await client.wait_headroom("Read", 200), bool)
        assert_type(await client.cancel_many(["a"]), dict[str, int])
        await job.result(timeout="5m")


frames = forebay.streams.FrameQueue(
    64, shape=(480, 640, 3), dtype="uint8", policy=forebay.Backoff("50ms", cap="1s"), ttl="45ms"
)
verdict = frames.offer(b"jpeg", priority=0)
if isinstance(verdict, forebay.streams.Dropped):
    assert_type(verdict.retry_after_s, float | None)
with frames.get(timeout=1.0) as frame:
    assert_type(frame, forebay.streams.Frame)
    assert_type(frame.deadline, float | None)
assert_type(frames.dropped["late"], int)
