"""app.upstream, and breaker= and fallback= of a task: what they take, and one line for what they do not."""

import pytest

import forebay
from forebay.core.limiter import LimitPolicy
from forebay.errors import AppError

URL = "http://127.0.0.1:8000/v1/x"


def test_an_upstream_is_a_task_with_a_breaker_and_a_limit_of_its_own():
    app = forebay.App()
    task = app.upstream("llm", url=URL, headers={"X-Key": "k"}, attempts_max=5, ttl="1h", priority="high")
    assert app.tasks == {"llm": task}
    spec = task.spec
    assert (spec.kind, spec.attempts_max, spec.ttl_s, spec.priority, spec.batch_max) == (
        "upstream",
        5,
        3600.0,
        2,
        1,
    )
    assert (spec.upstream.url, spec.upstream.method, spec.upstream.headers) == (
        URL,
        "POST",
        (("X-Key", "k"),),
    )
    assert spec.breaker is not None
    assert app.upstream("bare", url=URL, breaker=False).spec.breaker is None
    assert app.upstream("four", url=URL, concurrency=4).spec.upstream.limit == LimitPolicy(
        rule="fixed", start=4, most=4
    )


MISTAKES = [
    (dict(url="ftp://a/b"), "upstream llm: url must be an http:// or https:// URL with a host"),
    (dict(url="http:///x"), "url must be"),
    (dict(url="http://a:99999/"), "url must be"),
    (dict(url="http://a b/"), "url must be"),
    (dict(url="http://a/\r\nx: y"), "url must be"),
    (dict(url=7), "url must be"),
    (dict(url="http://me:hunter2@a/"), "url must be"),
    (dict(headers=["a"]), "headers must be a dict of texts, not 'list'"),
    (dict(headers={"A": "5", "a": "6"}), "headers must be each name once, whatever its case, not 'a'"),
    (dict(headers={"a b": "c"}), "headers must be names of headers"),
    (dict(headers={"Host": "c"}), "headers must be names of headers that are not Forebay's own to set"),
    (dict(headers={"Authorization": "hunter2\r\nx: y"}), "headers['Authorization'] must be printable ASCII"),
    (dict(concurrency=0), 'concurrency must be "auto", "aimd" or a whole number from 1 to 1,024, not 0'),
    (dict(concurrency=True), "concurrency must be"),
    (dict(method="GET"), 'method must be "POST", "PUT" or "PATCH"'),
    (dict(idle_timeout=0), "idle_timeout must be a duration above 0"),
    (dict(answer_bytes_max="much"), "answer_bytes_max must be a size above 0"),
    (dict(batch_max=4), "there is no argument batch_max"),
    (dict(breaker="yes"), "breaker must be a forebay.Breaker"),
    (dict(breaker=False, fallback=1), "breaker must be a breaker where fallback is given"),
    (dict(description=7), "description must be a text"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_a_wrong_argument_is_one_line_and_shows_no_secret(arguments, words):
    with pytest.raises(AppError) as seen:
        forebay.App().upstream("llm", **{"url": URL, **arguments})
    assert words in str(seen.value)
    assert "hunter2" not in str(seen.value)
    assert len(str(seen.value).splitlines()) == 1


def test_a_name_is_a_name_and_is_taken_once():
    app = forebay.App()
    app.upstream("llm", url=URL)
    with pytest.raises(AppError, match="upstream llm: declared twice"):
        app.upstream("llm", url=URL)
    with pytest.raises(AppError, match="name must be letters"):
        app.upstream("a/b", url=URL)


def test_a_fallback_is_a_task_by_its_function_class_or_upstream_or_any_json():
    app = forebay.App()

    @app.task()
    def small(x):
        return x

    @app.task()
    class Model:
        def predict(self, xs):
            return xs

    llm = app.upstream("llm", url=URL)
    for number, (fallback, told) in enumerate(
        [
            (small, ("small", None)),
            (Model, ("Model", None)),
            (llm, ("llm", None)),
            (None, ("", b"null")),
            ({"a": [1]}, ("", b'{"a":[1]}')),
            ("text", ("", b'"text"')),
        ]
    ):
        app.task(name=f"t{number}", fallback=fallback)(lambda_of(number))
        spec = app.tasks[f"t{number}"].spec
        assert (spec.fallback, spec.canned) == told
        assert spec.breaker is not None
        assert spec.breaker.slow_s is None


def lambda_of(number):
    def function(x):
        return number

    return function


def given(app, **arguments):
    app.task(name="t", **arguments)(lambda_of(0))


def test_what_cannot_stand_in_is_refused_in_one_line():
    app = forebay.App()

    def stranger(x):
        return x

    @app.task(fallback=1)
    def has_one(x):
        return x

    for fallback, words in (
        (stranger, "task t: fallback stranger must be declared before it, with @app.task()"),
        (has_one, "task t: fallback has_one has a fallback itself"),
        ({1, 2}, "task t: fallback must be a task, or JSON as the answer"),
        (float("nan"), "task t: fallback must be a task, or JSON as the answer"),
        ("x" * 70_000, "task t: fallback must be at most 65,536 bytes of JSON"),
    ):
        with pytest.raises(AppError) as seen:
            given(app, fallback=fallback)
        assert words in str(seen.value)


def test_the_breaker_of_a_task_has_no_name_and_no_fallback_of_its_own():
    for breaker, words in (
        (forebay.Breaker("named by test_upstream"), "breaker has the name of its task"),
        (forebay.Breaker(fallback=1), "give fallback= to the task"),
        (0.5, "breaker must be a forebay.Breaker, not 0.5"),
    ):
        with pytest.raises(AppError, match=words):
            given(forebay.App(), breaker=breaker)


def test_slow_counts_on_a_task_only_when_it_is_given():
    app = forebay.App()
    app.task(name="a", breaker=forebay.Breaker())(lambda_of(0))
    app.task(name="b", breaker=forebay.Breaker(slow="1s"))(lambda_of(0))
    app.task(name="c", breaker=forebay.Breaker(ignore=KeyError))(lambda_of(0))
    assert [app.tasks[name].spec.breaker.slow_s for name in "abc"] == [None, 1.0, None]
    assert app.tasks["c"].breaker_ignore == (KeyError,)


def test_a_discipline_of_its_waiting_requests_is_read_as_on_a_task():
    app = forebay.App()
    app.upstream("a", url="http://127.0.0.1/", discipline="codel", wait_target="50ms", wait_interval="1s")
    spec = app.tasks["a"].spec
    assert (spec.discipline.value, spec.wait_target_s, spec.wait_interval_s) == ("codel", 0.05, 1.0)
    with pytest.raises(AppError, match='upstream b: discipline must be "deadline", "newest" or "codel"'):
        app.upstream("b", url="http://127.0.0.1/", discipline="oldest")
    with pytest.raises(
        AppError, match="upstream c: wait_target must be used with discipline newest or codel"
    ):
        app.upstream("c", url="http://127.0.0.1/", wait_target="50ms")
