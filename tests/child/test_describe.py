"""An application is described by a child: its types as schemas, its mistakes as one line each."""

import asyncio
import os

import jsonschema_rs
import pytest

from forebay.errors import AppError
from forebay.node.describe import describe, describe_app
from tests.child.harness import written

EVERY_KIND = """
import dataclasses, enum, typing, msgspec, pydantic

class Model(pydantic.BaseModel):
    n: int
class Record(msgspec.Struct):
    n: int
@dataclasses.dataclass
class Data:
    n: int
class Typed(typing.TypedDict):
    n: int

@app.task()
def model(x: Model) -> Model:
    "Reads a model."
@app.task()
def record(x: Record) -> Record: ...
@app.task()
def data(x: Data) -> Data: ...
@app.task()
def typed(x: Typed) -> Typed: ...
@app.task()
def nested(x: dict[str, list[Model]]) -> list[Model]: ...
@app.task()
def plain(x: str | None) -> list[float]: ...
@app.task()
def anything(x): ...
@app.task(batch_max=4, timeout="3s")
class Batched:
    "Reads batches."
    def predict(self, items: list[Record]) -> list[Data | Failed]: ...
@app.task()
def parts(x: int) -> typing.Iterator[str]:
    yield "x"
print("what user code prints is not part of the description")
"""


def described(app: str, **changes):
    return describe_app(app, env=dict(os.environ), **changes)


def test_every_kind_of_type_has_a_schema_that_tells_good_from_bad(tmp_path):
    app = described(written(tmp_path, EVERY_KIND))
    good, bad = {"n": 1}, {"n": "many"}
    for name in ("model", "record", "data", "typed", "Batched"):
        task = app.task(name)
        for schema in (task.input_schema, task.output_schema):
            assert jsonschema_rs.validator_for(schema).is_valid(good)
            assert not jsonschema_rs.validator_for(schema).is_valid(bad)
    nested = jsonschema_rs.validator_for(app.task("nested").input_schema)
    assert nested.is_valid({"a": [good]})
    assert not nested.is_valid({"a": [bad]})
    assert jsonschema_rs.validator_for(app.task("plain").input_schema).is_valid(None)
    assert (app.task("anything").input_schema, app.task("anything").output_schema) == ({}, {})
    assert jsonschema_rs.validator_for(app.task("parts").output_schema).is_valid(["a", "b"])
    assert app.functions == ("model", "record", "data", "typed", "nested", "plain", "anything", "parts")
    assert (app.task("Batched").doc, app.task("Batched").kind) == ("Reads batches.", "class")
    assert (app.task("Batched").batch_max, app.task("Batched").timeout_s) == (4, 3.0)
    assert app.task("nobody") is None


MISTAKES = [
    ("1 / 0\n", "", ["ZeroDivisionError", "line 6"]),
    ("def broken(:\n", "", ["SyntaxError", "line 6"]),
    ("import no_such_package_at_all\n", "", ["ModuleNotFoundError", "no_such_package_at_all"]),
    ("sys.exit(0)\n", "", ["SystemExit"]),
    ("os._exit(3)\n", "", ["ended the process", "exit code 3"]),
    ("ctypes.string_at(0)\n", "", ["ended the process", "SIGSEGV"]),
    ("", "", ["declares no task"]),
    ("del app\n", "", ["no forebay.App"]),
    ("app = 3\n", "", ["app is a int, not a forebay.App"]),
    ("a = forebay.App()\nb = forebay.App()\ndel app\n", "", ["several Apps (a, b)"]),
    ("@app.task()\ndef f(x): ...\n", ":nothing", ["it has no nothing"]),
    ("@app.task()\ndef f(x): ...\n", ":f", ["f is a function, not a forebay.App"]),
    ("@app.task(timeout='soon')\ndef f(x): ...\n", "", ["task f", "timeout", "'soon'", "line 6"]),
    ("class Own: ...\n@app.task()\ndef f(x: Own): ...\n", "", ["task f", "input", "Own"]),
    ("class Own: ...\n@app.task()\ndef f(x) -> Own: ...\n", "", ["task f", "output", "Own"]),
    ("class Loud(Exception):\n  def __str__(self): 1 / 0\nraise Loud\n", "", ["Loud", "line 8"]),
]


@pytest.mark.parametrize(("source", "attribute", "words"), MISTAKES)
def test_a_mistake_is_one_line_that_names_it(tmp_path, source, attribute, words):
    with pytest.raises(AppError) as caught:
        described(written(tmp_path, source) + attribute)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_an_app_by_another_name_can_be_named_or_found(tmp_path):
    path = written(tmp_path, "mine = app\ndel app\n@mine.task()\ndef f(x): ...\n")
    assert described(path).functions == ("f",)
    assert described(f"{path}:mine").functions == ("f",)


def test_a_missing_file_and_a_missing_module_are_said(tmp_path):
    with pytest.raises(AppError, match="no such file"):
        described(str(tmp_path / "none.py"))
    with pytest.raises(AppError, match="no such module"):
        described("no_such_module_at_all")


@pytest.mark.parametrize(
    ("name", "words"), [("", "has no name"), (":app", "has no name"), ("\udcff.py", "must be UTF-8")]
)
def test_a_name_that_is_none_is_said_before_a_process_is_started(monkeypatch, name, words):
    monkeypatch.setattr("forebay.node.describe.spawn", None)
    with pytest.raises(AppError, match=words):
        described(name)


def test_a_file_finds_its_neighbours_and_may_be_called_like_a_module(tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'there'\n")
    path = written(tmp_path, "import json, beside\n@app.task(name=beside.NAME)\ndef f(x): ...\n", "json.py")
    assert described(path).functions == ("there",)


def test_an_import_without_end_is_given_up_and_leaves_nothing(tmp_path):
    path = written(tmp_path, "import subprocess\nsubprocess.Popen(['sleep', '600'])\ntime.sleep(600)\n")
    with pytest.raises(AppError, match="still importing after 1 s"):
        described(path, timeout_s=1.0)


def test_it_does_not_block_a_loop(tmp_path):
    path = written(tmp_path, "@app.task()\ndef f(x): ...\n")

    async def main():
        return await describe(path, env=dict(os.environ))

    assert asyncio.run(main()).functions == ("f",)
