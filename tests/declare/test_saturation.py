"""gate=forebay.Saturation(...) of an upstream: what it takes, and one line for what it does not."""

import pytest

import forebay
from forebay.core.saturation import SaturationPolicy, SaturationSpec
from forebay.errors import AppError

URL = "http://127.0.0.1:8000/v1/x?y=1"
KEY = {"Authorization": "Bearer hunter2"}


def gate_of(metric="queued", url=URL, headers=None, **given):
    gate = forebay.Saturation(metric, **({"close_at": 20, "open_at": 10} | given))
    return forebay.App().upstream("llm", url=url, headers=headers, gate=gate).spec.upstream.gate


def test_the_page_is_the_one_of_the_upstream_unless_another_is_named():
    assert gate_of(headers=KEY) == SaturationSpec(
        url="http://127.0.0.1:8000/metrics",
        metric="queued",
        policy=SaturationPolicy(close_at=20.0, open_at=10.0, every_s=1.0, stale_s=10.0),
        headers=(("Authorization", "Bearer hunter2"),),
    )
    assert gate_of(url="https://[::1]:8443/a/b").url == "https://[::1]:8443/metrics"
    assert gate_of(every="250ms", of="sum").policy.every_s == 0.25


@pytest.mark.parametrize("url", ["http://127.0.0.1:8002/metrics", "https://127.0.0.1:8000/metrics"])
def test_a_key_is_told_to_no_other_server(url):
    gate = gate_of(url=URL, headers=KEY)
    assert "hunter2" not in repr(gate)
    elsewhere = forebay.Saturation("queued", close_at=2, open_at=1, url=url)
    spec = forebay.App().upstream("llm", url=URL, headers=KEY, gate=elsewhere).spec.upstream.gate
    assert (spec.url, spec.headers) == (url, ())


@pytest.mark.parametrize(
    ("metric", "name", "labels"),
    [
        ("a_b:c", "a_b:c", ()),
        (" a{} ", "a", ()),
        ('a{b="c"}', "a", (("b", "c"),)),
        ('a{ b = "c" , d="e",}', "a", (("b", "c"), ("d", "e"))),
        (r'a{b="c\"}\\,\n"}', "a", (("b", 'c"}\\,\n'),)),
        ('a{b=""}', "a", (("b", ""),)),
    ],
)
def test_a_metric_has_a_name_and_labels(metric, name, labels):
    gate = gate_of(metric)
    assert (gate.metric, gate.labels) == (name, labels)


METRIC = "saturation: metric must be the name of a metric, with labels or without"
MISTAKES = [
    (dict(metric=""), METRIC),
    (dict(metric=7), METRIC),
    (dict(metric="a b"), METRIC),
    (dict(metric="1a"), METRIC),
    (dict(metric="a{b=c}"), METRIC),
    (dict(metric='a{b="c"'), METRIC),
    (dict(metric='a{b="c"}}'), METRIC),
    (dict(metric='a{b="c" d="e"}'), METRIC),
    (dict(metric='a{b="c",b="d"}'), METRIC),
    (dict(metric='a{b=~"c"}'), METRIC),
    (dict(metric="a" * 2_000), METRIC),
    (dict(close_at=0), "saturation queued: close_at must be a number above 0, not 0"),
    (dict(close_at="many"), "close_at must be a number above 0, not 'many'"),
    (dict(close_at=True), "close_at must be a number above 0, not True"),
    (dict(close_at=float("nan")), "close_at must be a number above 0, not nan"),
    (dict(close_at=10**400), "close_at must be a number above 0"),
    (dict(open_at=20), "open_at must be a number from 0 to less than close_at (20), not 20"),
    (dict(open_at=-1), "open_at must be a number from 0 to less than close_at (20), not -1"),
    (dict(open_at=None), "open_at must be a number from 0 to less than close_at (20), not None"),
    (dict(every=0), "every must be a duration above 0"),
    (dict(every="50ms"), "every must be a duration from 100ms to 1m, not '50ms'"),
    (dict(every="2m"), "every must be a duration from 100ms to 1m"),
    (dict(of="mean"), 'of must be "max" or "sum", not \'mean\''),
    (dict(url="ftp://a/"), "url must be an http:// or https:// URL"),
    (dict(url="http://me:hunter2@a/"), "url must be an http:// or https:// URL"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_a_wrong_argument_is_one_line_and_shows_no_secret(arguments, words):
    with pytest.raises(AppError) as seen:
        forebay.Saturation(**({"metric": "queued", "close_at": 20, "open_at": 10} | arguments))
    assert words in str(seen.value)
    assert "hunter2" not in str(seen.value)
    assert len(str(seen.value).splitlines()) == 1


def test_a_gate_is_a_saturation():
    with pytest.raises(AppError, match=r"upstream llm: gate must be a forebay.Saturation, not 'queued'"):
        forebay.App().upstream("llm", url=URL, gate="queued")
