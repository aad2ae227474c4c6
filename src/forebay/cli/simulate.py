"""`forebay simulate SCENARIO`: a load, a model and policies in virtual time: table, CSV, SVG and PNG."""

import csv
import io
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.cli.options import Json
from forebay.cli.plots import png, svg
from forebay.cli.scenarios import read_scenario
from forebay.cli.show import Stop, clean, print_json, say, table
from forebay.core.loading import quantile
from forebay.core.sizing import words
from forebay.sim.scenario import DROPPED, GOOD, LATE, REFUSED, Ended, Policy, Scenario, Second, play, seconds

SHIPPED = files("forebay.sim").joinpath("scenarios")
Text = str | None


def simulate(
    scenario: Annotated[
        Text, typer.Argument(metavar="SCENARIO", help="A .toml file, or one that ships.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List those that ship.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the file, to begin one's own with.")] = False,
    csv_: Annotated[Text, typer.Option("--csv", metavar="FILE", help="Each second of each policy.")] = None,
    plot: Annotated[Text, typer.Option(metavar="FILE", help="A picture: .svg or .png.")] = None,
    json_: Json = False,
) -> int:
    """Play a scenario in virtual time, and compare its policies: Forebay's own decisions, and plain queues.

    Nothing is served; a minute takes a moment. The four incidents that ship have a before and an after.
    """
    if list_:
        return _list(json_)
    if scenario is None:
        raise Stop("Missing argument 'SCENARIO' (--list names those that ship)", 2)
    if plot is not None and not plot.endswith((".svg", ".png")):
        raise Stop(f"--plot {clean(plot, 200)}: must end in .svg or .png", 2)
    text = _text(scenario)
    if show:
        say(text.rstrip())
        return 0
    found = read_scenario(text, scenario)
    try:
        played = [(policy, play(found, policy)) for policy in found.policies]
    except ValueError as error:
        raise Stop(str(error), 2) from None
    stories = [(policy.name, seconds(ended, found.for_s)) for policy, ended in played]
    if csv_ is not None:
        _keep(csv_, _csv(stories).encode())
    if plot is not None:
        _keep(plot, png(stories) if plot.endswith(".png") else svg(found.title, stories).encode())
    rows = [
        _row(found, policy, ended, story) for (policy, ended), (_, story) in zip(played, stories, strict=True)
    ]
    if json_:
        print_json({"title": found.title, "for_s": found.for_s, "policies": rows})
    else:
        _print(found, rows)
    return 0


def _text(name: str) -> str:
    shipped = SHIPPED.joinpath(f"{name}.toml")
    try:
        if "/" not in name and not name.endswith(".toml") and shipped.is_file():
            return shipped.read_text(encoding="utf-8")
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        raise Stop(f"{clean(name, 200)}: no such scenario (--list names those that ship)", 2) from None


def _list(json_: bool) -> int:
    names = sorted(one.name.removesuffix(".toml") for one in SHIPPED.iterdir() if one.name.endswith(".toml"))
    rows = [{"scenario": name, "title": read_scenario(_text(name), name).title} for name in names]
    if json_:
        print_json(rows)
    else:
        table(("scenario", "title"), [list(row.values()) for row in rows])
    return 0


def _row(scenario: Scenario, policy: Policy, ended: list[Ended], story: list[Second]) -> dict[str, Any]:
    counts = {how: sum(one.how == how for one in ended) for how in (GOOD, LATE, REFUSED, DROPPED)}
    waits = sorted(one.done_at - one.at for one in ended if one.how in {GOOD, LATE})
    of = {
        one.name: sum(e.how == GOOD for e in ended if e.of == one.name)
        / max(1, sum(e.of == one.name for e in ended))
        for one in scenario.arrivals
    }
    return {
        "policy": policy.name,
        "came": len(ended),
        **counts,
        "good_share": counts[GOOD] / max(1, len(ended)),
        "good_of": of,
        "good_per_s": counts[GOOD] / scenario.for_s,
        "p50_s": quantile(waits, 0.5),
        "p99_s": quantile(waits, 0.99),
        "inside_max": max(one.inside for one in story),
    }


def _print(scenario: Scenario, rows: list[dict[str, Any]]) -> None:
    many = len(scenario.arrivals) > 1
    say(clean(f"{scenario.title}; in time is within {words.span(scenario.deadline_s)}"))
    names = ["policy", "in time", *([f"of {one.name}" for one in scenario.arrivals] if many else []),
             "late", "refused", "dropped", "p50", "p99", "most inside"]  # fmt: skip
    shown: list[list[object]] = []
    for row in rows:
        each = [f"{one:.1%}" for one in row["good_of"].values()] if many else []
        lost = [f"{row[how]:,}" for how in (LATE, REFUSED, DROPPED)]
        waits = [words.span(row[name]) for name in ("p50_s", "p99_s")]
        shown.append(
            [row["policy"], f"{row['good_share']:.1%}", *each, *lost, *waits, f"{row['inside_max']:,}"]
        )
    table(names, shown)


def _csv(stories: list[tuple[str, list[Second]]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["policy", *Second._fields])
    for name, story in stories:
        writer.writerows([name, *one] for one in story)
    return out.getvalue()


def _keep(name: str, data: bytes) -> None:
    try:
        Path(name).write_bytes(data)
    except (OSError, ValueError) as error:
        raise Stop(f"{clean(name, 200)}: {getattr(error, 'strerror', error)}", 2) from None
