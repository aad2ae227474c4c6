"""The application of the page on variants is what it says, and so are its numbers."""

import os
import re
from pathlib import Path

import forebay
from forebay.core import variants
from forebay.core.variants import Rung
from forebay.declare.variants import Variant
from forebay.node.describe import describe_app

PAGE = (Path(__file__).parents[2] / "docs" / "variants.md").read_text()


def test_the_blocks_are_an_application_whose_tasks_have_these_variants(tmp_path):
    text = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    path = tmp_path / "page.py"
    path.write_text(text)
    names = {}
    exec(compile(text, str(path), "exec"), names)
    described = describe_app(str(path), env=dict(os.environ))
    assert described.task("Classify").ladder.rungs == (Rung(name="Small", quality=0.92),)
    rungs = described.task("brightness").ladder.rungs
    assert [(rung.name, rung.enter) for rung in rungs] == [("half", 0.9), ("quarter", 0.95)]
    small = names["Small"]()
    small.load(forebay.Device("cpu", 0, None))
    assert small.predict(["a fine", "a day"]) == ["good", "unknown"]
    assert names["Classify"]().predict(["a fine day", "rain"]) == ["good", "unknown"]
    for level, mean in ((0, 1.5), (1, 1.0), (2, 0.0)):
        context = forebay.Context(level=level)
        assert names["brightness"]([0.0, 1.0, 2.0, 3.0], context) == mean


def test_its_numbers_are_those_of_the_code():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    assert (
        list(rows)
        == ["target", "name", "quality", "enter", "leave"]
        == [name for name in ("target", "name", "quality", "enter", "leave") if name in Variant.__slots__]
    )
    assert rows["enter"] == f"`{variants.ENTER:g}`" and round(variants.LEAVE / variants.ENTER, 3) == 0.667
    assert f"{variants.RUNGS_MAX} at most" in PAGE
    assert variants.DEEPER_SHARE == 0.25 and "a quarter of the stay" in PAGE
    assert variants.BUSY_MAX == 0.9 and "at most nine tenths" in PAGE
    assert variants.RELAPSE_STAYS == 4 and "within four stays" in PAGE
    assert 2**variants.RELAPSES_MAX == 32 and "up to 32 times" in PAGE
    assert f'`variants_stay="{variants.STAY_S:g}s"`' in PAGE
