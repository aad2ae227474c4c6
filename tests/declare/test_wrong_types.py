"""Every argument of what is declared refuses what it cannot mean, in one line that names it."""

import inspect
import math

import pytest

import forebay
from forebay.errors import AppError


def echo(text: str) -> str:
    return text


class Model:
    def predict(self, items: list[str]) -> list[str]:
        return items


NONSENSE = {
    "object": object(),
    "text": "\n no word of ours \n",
    "number": -7.5,
    "not a number": math.nan,
    "bytes": b"b",
    "list": [object()],
    "dict": {1: object()},
    "function": print,
    "class": dict,
    "flag": NotImplemented,
    "tuple": (object(),),
}
DECLARED = {
    "task": (forebay.App.task, lambda **given: forebay.App().task(**given)(echo)),
    "task of a class": (forebay.App.task, lambda **given: forebay.App().task(**given)(Model)),
    "every": (forebay.App.every, lambda **given: forebay.App().every(**{"period": "1h"} | given)(echo)),
    "every by cron": (
        forebay.App.every,
        lambda **given: forebay.App().every(**{"cron": "0 3 * * *"} | given)(echo),
    ),
    "upstream": (
        forebay.App.upstream,
        lambda **given: forebay.App().upstream(**{"name": "llm", "url": "http://127.0.0.1:1/"} | given),
    ),
    "breaker": (forebay.Breaker, lambda **given: forebay.Breaker(**given)),
}
# What some arguments do take, because it may be meant.
TAKEN = {
    ("task", "fallback"): {"text", "number"},
    ("task of a class", "fallback"): {"text", "number"},
    ("upstream", "fallback"): {"text", "number"},
    ("upstream", "description"): {"text"},
    ("every", "payload"): {"text", "number"},
    ("every by cron", "payload"): {"text", "number"},
    ("breaker", "fallback"): set(NONSENSE),
}
# Said of what stands in the place of the application's own code.
UNNAMED = {(what, "period", kind) for what in ("every", "every by cron") for kind in ("function", "class")}


def arguments(of):
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [
        name
        for name, one in inspect.signature(of).parameters.items()
        if name != "self" and one.kind not in kinds
    ]


CASES = [(what, name) for what, (of, _) in DECLARED.items() for name in arguments(of)]


@pytest.mark.parametrize(("what", "argument"), CASES, ids=[f"{what}, {name}" for what, name in CASES])
def test_what_an_argument_cannot_mean_is_refused_by_its_name(what, argument):
    _, declare = DECLARED[what]
    for kind, value in NONSENSE.items():
        if kind in TAKEN.get((what, argument), ()):
            declare(**{argument: value})
            continue
        with pytest.raises(AppError) as refused:
            declare(**{argument: value})
            pytest.fail(f"{argument}={value!r} was taken")
        said = str(refused.value)
        assert "\n" not in said and len(said) < 400, said
        assert argument in said or (what, argument, kind) in UNNAMED, said


@pytest.mark.parametrize("tenant", ["", " ", "a/b", "é", "x" * 65, None, 5, b"a"])
def test_a_tenant_of_a_cron_entry_is_one_a_key_could_have(tenant):
    with pytest.raises(AppError, match=r"^cron entry echo: tenant must be 1 to 64 of A-Z"):
        forebay.App().every("1h", tenant=tenant)(echo)
    app = forebay.App()
    app.every("1h")(echo)
    app.every("1h", name="of_a", tenant="a.b-c_1")(echo)
    assert [entry.tenant for entry in app.crons] == ["", "a.b-c_1"]


@pytest.mark.parametrize(
    "clock", [5, None, "now", print, lambda: None, lambda: True, lambda x: 1.0, lambda: 1 / 0]
)
def test_the_clock_of_a_breaker_is_one(clock):
    with pytest.raises(
        AppError, match=r"^breaker: clock must be a function without parameters that returns seconds"
    ):
        forebay.Breaker(clock=clock)
