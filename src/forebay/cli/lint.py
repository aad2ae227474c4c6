"""`forebay lint PATH…`: what in pipelines, clouds, containers, units and code goes wrong under load."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from forebay.cli.asked import Asked
from forebay.cli.options import Json
from forebay.cli.show import Stop, clean, print_json, say
from forebay.core.linting import RULES, Known, Level, Lint, kind_of, lint

FILE_BYTES_MAX = 1 << 20
FILES_MAX = 20_000
_LEFT_OUT = frozenset(
    {".git", "node_modules", "__pycache__", ".terraform", ".tox", "site-packages", ".mypy_cache"}
)
_SARIF_LEVEL = {Level.NOTE: "note", Level.WARNING: "warning", Level.ERROR: "error"}
Text = str | None


class Found(NamedTuple):
    """A finding and the file it is in."""

    path: str
    lint: Lint


def lint_command(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH…", help="Files, or directories with all below.")
    ] = None,
    per_replica: Annotated[Text, typer.Option(metavar="RATE", help="What one replica does.")] = None,
    wait_max: Annotated[Text, typer.Option(metavar="TIME", help="Longest wait in line.")] = None,
    item_size: Annotated[Text, typer.Option(metavar="SIZE", help="Bytes of one item in a queue.")] = None,
    grace: Annotated[Text, typer.Option(metavar="TIME", help="What work has at a stop. [30s]")] = None,
    level: Annotated[
        Text, typer.Option(metavar="LEVEL", help="Answer 1 from: error, warning or note.")
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0, for merge requests.")] = False,
    json_: Json = False,
) -> int:
    """Look into files that say how inference is called, run and scaled, and name what goes wrong under load.

    A line `forebay: ignore RULE` on it or above waves a finding through. Answers 1 when something is found.
    """
    if sarif and json_:
        raise Stop("--sarif and --json cannot both be", 2)
    least = _level(level)
    if rules:
        return _list_rules(json_)
    if not paths:
        raise Stop("Missing argument 'PATH…'", 2)
    flags = {"per_replica": per_replica, "wait_max": wait_max, "item_size": item_size, "grace": grace}
    asked = Asked({name: value for name, value in flags.items() if value is not None})
    known = Known(asked.rate("per_replica"), asked.seconds("wait_max"), asked.bytes("item_size"))
    grace_s = asked.seconds("grace", zero=True)
    seen, found = look(paths, known if grace_s is None else known._replace(grace_s=grace_s))
    if sarif:
        print_json(sarif_of(found))
    elif json_:
        print_json({"files": seen, "findings": [_row(one) for one in found]})
    else:
        _print(seen, found)
    return 1 if any(one.lint.level >= least for one in found) else 0


def look(paths: list[str], known: Known) -> tuple[int, list[Found]]:
    """Return how many files had rules, and what was found in them. Raises Stop for what cannot be read."""
    seen, found = 0, list[Found]()
    for path in _files(paths):
        text = _text(path)
        if text is None or kind_of(path.as_posix(), text) is None:
            continue
        seen += 1
        found += [Found(path.as_posix(), one) for one in lint(path.as_posix(), text, known)]
    return seen, found


def _files(names: list[str]) -> Iterator[Path]:
    count = 0
    for name in names:
        path = Path(name)
        if not path.exists():
            raise Stop(f"{clean(name, 200)}: no such file or directory", 2)
        for one in [path] if path.is_file() else _below(path):
            count += 1
            if count > FILES_MAX:
                raise Stop(f"more than {FILES_MAX:,} files: name the directories that matter", 2)
            yield one


def _below(root: Path) -> Iterator[Path]:
    for where, directories, files in os.walk(root):
        directories[:] = sorted(
            one for one in directories if one not in _LEFT_OUT and not one.startswith((".venv", "venv"))
        )
        for name in sorted(files):
            path = Path(where) / name
            if path.is_file() and not path.is_symlink():
                yield path


def _text(path: Path) -> str | None:
    """Return what a file says, None for one that is no text, or too large to be written by hand."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Stop(f"{clean(path, 200)}: {error.strerror}", 2) from None
    if len(raw) > FILE_BYTES_MAX or b"\0" in raw:
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _level(text: str | None) -> Level:
    named = {one.name.lower(): one for one in Level}
    if text is not None and text not in named:
        raise Stop(f"--level: {text!r} is none of error, warning, note", 2)
    return Level.WARNING if text is None else named[text]


def _row(one: Found) -> dict[str, Any]:
    lint = one.lint
    return {
        "path": one.path, "line": lint.line, "rule": lint.rule, "level": lint.level.name.lower(),
        "evidence": lint.evidence, "change": lint.change,
    }  # fmt: skip


def _print(seen: int, found: list[Found]) -> None:
    for one in found:
        lint = one.lint
        say(clean(f"{one.path}:{lint.line}: {lint.level.name.lower()} {lint.rule}: {lint.evidence}"))
        say(clean(f"    {lint.change}"))
    files = f"{seen:,} file{'' if seen == 1 else 's'}"
    say(f"{files}, {len(found):,} finding{'' if len(found) == 1 else 's'}")


def _list_rules(json_: bool) -> int:
    if json_:
        print_json([{"rule": n, "level": r.level.name.lower(), "text": r.text} for n, r in RULES.items()])
    else:
        for name, rule in RULES.items():
            say(f"{name:<26} {rule.level.name.lower():<8} {rule.text}")
    return 0


def sarif_of(found: list[Found]) -> dict[str, Any]:
    """Return the findings as a SARIF 2.1.0 document."""
    from forebay import __version__

    used = [name for name in RULES if any(one.lint.rule == name for one in found)]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "forebay lint",
                        "version": __version__,
                        "rules": [
                            {
                                "id": name,
                                "shortDescription": {"text": RULES[name].text},
                                "defaultConfiguration": {"level": _SARIF_LEVEL[RULES[name].level]},
                            }
                            for name in used
                        ],
                    }
                },
                "results": [_result(one, used) for one in found],
            }
        ],
    }


def _result(one: Found, used: list[str]) -> dict[str, Any]:
    lint = one.lint
    place = {"artifactLocation": {"uri": one.path}, "region": {"startLine": lint.line}}
    return {
        "ruleId": lint.rule,
        "ruleIndex": used.index(lint.rule),
        "level": _SARIF_LEVEL[lint.level],
        "message": {"text": f"{lint.evidence}: {lint.change}"},
        "locations": [{"physicalLocation": place}],
    }
