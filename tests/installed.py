"""Run from the installed wheel, far from the sources: imports, and the contract on every engine that ships.

Not for pytest: `./test lane wheel` copies this file away and runs it with `python -I`.
Prints one line per engine and ends with "N passed, N failed"; exit code 1 when anything failed.
"""

import asyncio
import importlib
import importlib.metadata
import pkgutil
import sys
import tempfile
from pathlib import Path

import forebay
from forebay.conformance import run_checks

sys.path.insert(0, str(Path(__file__).parent))  # `python -I` leaves it out

from engines import ENGINES  # noqa: E402  (tests/conformance/engines.py, copied beside this file)


async def run_engines(root):
    """Run every check on every engine; return how many passed and how many failed."""
    passed = failed = 0
    for name, engine in ENGINES.items():
        way = engine(root)
        report = await run_checks(way.open, reopen=way.reopen)
        print(f"{name}: {report}")
        passed += len(report.passed)
        failed += len(report.failed) + (not report.passed)
    return passed, failed


def import_everything():
    """Import every module of the package: what the wheel forgot to bring shows here."""
    found = [m.name for m in pkgutil.walk_packages(forebay.__path__, "forebay.") if "__main__" not in m.name]
    for name in found:
        importlib.import_module(name)
    return len(found)


def main():
    assert "site-packages" in Path(forebay.__file__).parts, forebay.__file__
    assert (Path(forebay.__file__).parent / "py.typed").exists(), "the wheel does not say that it is typed"
    assert importlib.metadata.version("forebay") == forebay.__version__
    print(f"{import_everything()} modules import")
    with tempfile.TemporaryDirectory() as root:
        passed, failed = asyncio.run(run_engines(Path(root)))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
