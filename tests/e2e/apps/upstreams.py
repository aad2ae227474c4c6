"""A model server elsewhere, named by the environment."""

import os

import forebay

app = forebay.App()
URL = os.environ["UPSTREAM_URL"]
KEY = {"Authorization": "Bearer s3cret-key"}
llm = app.upstream(
    "llm",
    url=URL,
    headers=KEY,
    timeout="20s",
    backoff="100ms",
    breaker=forebay.Breaker(failures=3, window="10s", open_for="1s"),
    description="The model server.",
)
app.upstream("two", url=URL, concurrency=2, breaker=False)
app.upstream(
    "spare",
    url=URL,
    breaker=forebay.Breaker(failures=1, window="10s", open_for="1m"),
    fallback={"spare": True},
)
app.upstream(
    "gated", url=URL, gate=forebay.Saturation('queued{model="a"}', close_at=10, open_at=5, every="200ms")
)
