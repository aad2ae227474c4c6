"""The applications of the pages on breakers and on upstreams are what they say."""

import os
import re
from pathlib import Path

import pytest

import forebay
from forebay.core.breaker import BreakerPolicy
from forebay.declare import circuits as breakers
from forebay.node.describe import describe_app

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def own_names(monkeypatch):
    monkeypatch.setattr(breakers, "_named", {})


def page(name, tmp_path):
    """Return the names of a page's application, and what a server reads of it."""
    text = "\n".join(
        re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)
    )
    path = tmp_path / "page.py"
    path.write_text(text)
    names = {}
    exec(compile(text, str(path), "exec"), names)
    described = describe_app(str(path), env=dict(os.environ), timeout_s=60.0)
    return names, {task.name: task for task in described.tasks}


def test_the_breakers_of_the_page_work_as_it_says(tmp_path):
    names, tasks = page("breakers.md", tmp_path)
    assert names["score"]("somebody") == 0.5
    for _ in range(9):
        with pytest.raises(ConnectionError):
            names["score"]("nobody")
    with pytest.raises(forebay.BreakerOpenError):
        names["score"]("somebody")
    assert names["enrich"]("a", forebay.Context(tenant="x")) == "A"  # its own state: not that of `features`
    for _ in range(3):
        with pytest.raises(ConnectionError):
            names["price"]("pear")
    assert names["price"]("pear") == 0.0
    assert tasks["large"].fallback == "small"
    assert (tasks["large"].breaker.failures, tasks["large"].breaker.slow_s) == (3, None)
    assert tasks["label"].canned == b'{"label":"unknown"}'
    assert (tasks["label"].breaker, tasks["score"].breaker) == (BreakerPolicy(), None)
    assert tasks["Rank"].breaker == BreakerPolicy(open_s=10.0)


def test_the_upstreams_of_the_page_are_read_as_it_says(tmp_path):
    _, tasks = page("upstreams.md", tmp_path)
    llm, embed = tasks["llm"], tasks["embed"]
    assert (llm.kind, llm.upstream.url, llm.timeout_s) == (
        "upstream",
        "http://127.0.0.1:8000/v1/chat/completions",
        120.0,
    )
    assert (llm.upstream.limit.rule, llm.upstream.limit.most, llm.breaker) == (
        "gradient",
        256,
        BreakerPolicy(),
    )
    assert (embed.upstream.limit.rule, embed.upstream.limit.start) == ("fixed", 8)
    assert embed.canned == b'{"embedding":null}'
    assert "Bearer" not in repr(llm)
    chat, detect = tasks["chat"].upstream.gate, tasks["detect"].upstream.gate
    assert (chat.url, chat.metric, chat.labels, chat.policy.every_s) == (
        "http://127.0.0.1:8000/metrics",
        "vllm:num_requests_waiting",
        (("model_name", "llama"),),
        1.0,
    )
    assert (detect.url, detect.policy.close_at, detect.policy.open_at) == (
        "http://127.0.0.1:8002/metrics",
        8.0,
        2.0,
    )


def test_the_tables_of_the_pages_name_every_argument():
    import inspect

    for name, function, elsewhere in (
        ("breakers.md", forebay.Breaker.__init__, {"clock"}),
        ("upstreams.md", forebay.App.upstream, {"name"}),
        ("upstreams.md", forebay.Saturation.__init__, set()),
    ):
        text = (DOCS / name).read_text()
        arguments = set(inspect.signature(function).parameters) - {"self", "unknown"} - elsewhere
        assert [one for one in arguments if f"`{one}`" not in text] == []
