"""@app.every: what it declares, on what, and the one sentence for each mistake."""

import asyncio

import pytest

from forebay.declare import App
from forebay.errors import AppError


def echo(payload):
    return payload


def entry_of(*args, **arguments):
    app = App()
    app.every(*args, **arguments)(app.task()(echo))
    (entry,) = app.crons
    return entry


def test_an_entry_has_the_documented_defaults():
    entry = entry_of("15m")
    assert (entry.name, entry.task, entry.every_s, entry.cron) == ("echo", "echo", 900, "")
    assert (entry.payload, entry.priority, entry.tenant) == (b"null", None, "")
    assert (entry.missed, entry.overlap, entry.jitter_s) == ("once", True, 0.0)


def test_every_argument_arrives():
    entry = entry_of(
        cron="0 3 * * *", tz="Europe/Berlin", name="nightly", payload={"a": [1]}, priority="low", tenant="x",
        missed="skip", overlap=False, jitter="5m",
    )  # fmt: skip
    assert (entry.name, entry.task, entry.cron, entry.tz) == ("nightly", "echo", "0 3 * * *", "Europe/Berlin")
    assert (entry.payload, entry.priority, entry.tenant) == (b'{"a":[1]}', 8, "x")
    assert (entry.missed, entry.overlap, entry.jitter_s) == ("skip", False, 300.0)


@pytest.mark.parametrize("above", [True, False])
def test_it_stands_above_or_below_the_task(above):
    app = App()
    task, every = app.task(name="big"), app.every("1h")
    target = every(task(echo)) if above else task(every(echo))
    assert target is echo
    assert list(app.tasks) == ["big"] and app.crons[0].task == "big"


def test_alone_it_declares_the_task_too_and_needs_no_parameter():
    app, ran = App(), []

    @app.every("1h")
    def sweep() -> int:
        """Sweeps."""
        ran.append(1)
        return len(ran)

    @app.every("1h")
    async def later() -> str:
        return "done"

    assert [(name, task.spec.doc) for name, task in app.tasks.items()] == [
        ("sweep", "Sweeps."),
        ("later", ""),
    ]
    assert [entry.task for entry in app.crons] == ["sweep", "later"]
    assert app.tasks["sweep"].target(None) == 1 and ran == [1]
    assert asyncio.run(app.tasks["later"].target(None)) == "done"
    assert app.tasks["later"].signature.is_async
    assert app.tasks["sweep"].signature.input_type is type(None)


def test_one_task_may_have_several_entries():
    app = App()

    @app.every("1h", name="hourly")
    @app.every(cron="0 0 * * *", name="daily")
    @app.task()
    class Model:
        def predict(self, items: list[int]) -> list[int]:
            return items

    assert [(entry.name, entry.task) for entry in app.crons] == [("daily", "Model"), ("hourly", "Model")]


WRONG = [
    ((), {}, 'cron entry echo: give either a period, as in @app.every("15m"), or cron="0 3 * * *"'),
    (("1h",), {"cron": "* * * * *"}, "cron entry echo: give either a period"),
    (("0.5s",), {}, "cron entry echo: period must be whole seconds, at least 1, not '0.5s'"),
    (("soon",), {}, "cron entry echo: period must be a duration above 0"),
    (("367d",), {}, "at most 366 days, not '367d'"),
    ((), {"cron": "0 25 * * *"}, "cron entry echo: cron: hour must be from 0 to 23, not '25'"),
    ((), {"cron": 5}, "cron entry echo: cron must be a text of five fields, not 5"),
    (
        (),
        {"cron": "0 3 * * *", "tz": "Mars/Base"},
        "cron entry echo: tz must be a time zone that this machine knows",
    ),
    ((), {"cron": "0 3 * * *", "tz": "../etc/passwd"}, "cron entry echo: tz must be a time zone"),
    ((), {"cron": "0 3 * * *", "tz": 1}, "cron entry echo: tz must be a time zone"),
    (("1h",), {"tz": "UTC"}, "cron entry echo: tz must be left out where a period is given"),
    (("1h",), {"missed": "all"}, 'cron entry echo: missed must be "once" or "skip", not \'all\''),
    (("1h",), {"overlap": 1}, "cron entry echo: overlap must be True or False, not 1"),
    (("1m",), {"jitter": "1m"}, "cron entry echo: jitter must be less than the time between two runs (60 s)"),
    (("5h",), {"jitter": "2h"}, "and at most 1 h, not '2h'"),
    ((), {"cron": "*/5 * * * *", "jitter": 300}, "less than the time between two runs (300 s)"),
    (("1h",), {"priority": "urgent"}, 'cron entry echo: priority must be "high"'),
    (("1h",), {"payload": {1, 2}}, "cron entry echo: payload must be a JSON value, not {1, 2}"),
    (("1h",), {"payload": float("nan")}, "cron entry echo: payload must be a JSON value, not nan"),
    (("1h",), {"payload": "x" * 300_000}, "cron entry echo: payload must be at most 262,144 bytes"),
    (
        ("1h",),
        {"tenant": None},
        "cron entry echo: tenant must be 1 to 64 of A-Z a-z 0-9 _ . - and begin with a letter or digit, not None",
    ),
    (("1h",), {"name": "a b"}, "task echo: name must be letters, digits"),
    (("1h",), {"zone": "UTC"}, "cron entry echo: there is no argument zone"),
]


@pytest.mark.parametrize(("args", "arguments", "said"), WRONG, ids=[row[2][-40:] for row in WRONG])
def test_a_mistake_is_one_sentence_that_names_it(args, arguments, said):
    with pytest.raises(AppError) as refused:
        entry_of(*args, **arguments)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_without_brackets_it_is_told_how_it_is_written():
    with pytest.raises(AppError, match=r'^@app.every on echo: give it a period, as in @app.every\("15m"\)$'):
        App().every(echo)


def test_two_entries_of_one_name_are_refused():
    app = App()
    app.every("1h")(app.task()(echo))
    with pytest.raises(AppError, match="cron entry echo: declared twice; give one of them another name="):
        app.every("2h")(echo)
