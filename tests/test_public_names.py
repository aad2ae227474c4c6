"""The public face: `forebay.__all__` is what the docs say, every name resolves, and importing it is cheap."""

import importlib.metadata
import subprocess
import sys

import pytest

import forebay

# The compatibility promise covers these. A new name is a decision: write it here and run docs/generate.py.
PUBLIC = [
    "App",
    "AsyncClient",
    "Backoff",
    "Blob",
    "Breaker",
    "BreakerOpenError",
    "Client",
    "Context",
    "Decimate",
    "Degrade",
    "Device",
    "ETA",
    "Failed",
    "ForebayError",
    "JobFailedError",
    "Permanent",
    "Pipeline",
    "Queue",
    "Retry",
    "Saturation",
    "Scale",
    "Stage",
    "Variant",
]

# Each takes longer to import than everything else together; children must not pay for them.
HEAVY = {
    "fastapi",
    "uvicorn",
    "apsw",
    "pydantic",
    "httpx",
    "typer",
    "prometheus_client",
    "numpy",
    "structlog",
}

DECLARE_ALL = """
import sys, forebay
app = forebay.App()
@app.task()
def echo(text: str) -> str:
    raise forebay.Permanent()
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


def test_the_public_names_are_these_and_no_others():
    assert sorted(forebay.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_there_and_says_what_it_is(name):
    assert (getattr(forebay, name).__doc__ or "").strip(), f"forebay.{name} has no docstring"


def test_the_package_of_frames_is_reached_by_its_name_and_imports_numpy_on_use_alone():
    code = "import sys, forebay; s = forebay.streams; print('numpy' in sys.modules); s.FrameQueue; print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        forebay.no_such_name


def test_the_version_is_the_one_of_the_package():
    assert forebay.__version__ == importlib.metadata.version("forebay")


def test_declaring_a_task_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", DECLARE_ALL], capture_output=True, text=True, timeout=30, check=True
    )
    assert not HEAVY & set(done.stdout.split())
