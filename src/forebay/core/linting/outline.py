"""Outlines: YAML in blocks, and HCL, as entries with their path, value and line; enough to look things up.

Not parsers: anchors, aliases and multi-line scalars are kept as the text of their lines.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

DEPTH_MAX: Final = 64
_PAIR: Final = re.compile(r"""(?P<key>"[^"]*"|'[^']*'|[^\s:#'"\[{][^:#]*?)\s*:(?:\s+(?P<value>.*))?$""")
_FLOW_PAIR: Final = re.compile(r"""["']?([\w.-]+)["']?\s*:\s*("[^"]*"|'[^']*'|[^,{}\[\]]+)""")
_BLOCK: Final = re.compile(r'^\s*([\w-]+)((?:\s+"[^"]*")*)\s*=?\s*\{\s*$')
_ATTRIBUTE: Final = re.compile(r"^\s*([\w-]+)\s*=\s*(.+?)\s*$")


class Entry(NamedTuple):
    """One thing that is said: where, what, and in which line (from 1)."""

    path: tuple[str, ...]
    value: str
    line: int

    @property
    def key(self) -> str:
        """The last part of its path."""
        return self.path[-1] if self.path else ""


def yaml_documents(text: str) -> Iterator[list[Entry]]:
    """Yield the entries of each document of a YAML file. An item of a list has its number as a part of the
    path; a line of a block scalar, and a plain item, is a value under that."""
    entries: list[Entry] = []
    stack: list[tuple[int, str]] = []  # (indent, part of the path)
    counts: dict[tuple[str, ...], int] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        if raw.startswith("---"):
            yield entries
            entries, stack, counts = [], [], {}
            continue
        line = _uncommented(raw)
        if not line.strip():
            continue
        indent, rest = len(line) - len(line.lstrip()), line.strip()
        while rest.startswith("- ") or rest == "-":
            _leave(stack, indent, item=True)
            parent = tuple(part for _, part in stack)
            counts[parent] = counts.get(parent, -1) + 1
            _enter(stack, indent, str(counts[parent]))
            gap = len(rest) - len(rest[1:].lstrip()) if rest != "-" else 1
            indent, rest = indent + gap, rest[1:].strip()
        if not rest:
            continue
        pair = _PAIR.match(rest)
        if pair is None:
            entries.append(Entry(tuple(part for at, part in stack if at < indent), _bare(rest), number))
            continue
        _leave(stack, indent, item=False)
        _enter(stack, indent, _bare(pair["key"]))
        path, value = tuple(part for _, part in stack), (pair["value"] or "").strip()
        entries.append(Entry(path, _bare(value), number))
        if value.startswith(("{", "[")):
            entries += [Entry((*path, key), _bare(one), number) for key, one in _FLOW_PAIR.findall(value)]
    yield entries


def _leave(stack: list[tuple[int, str]], indent: int, *, item: bool) -> None:
    while stack and (
        stack[-1][0] > indent or (stack[-1][0] == indent and (not item or stack[-1][1].isdecimal()))
    ):
        stack.pop()


def _enter(stack: list[tuple[int, str]], indent: int, part: str) -> None:
    if len(stack) < DEPTH_MAX:
        stack.append((indent, part))


def _uncommented(line: str) -> str:
    """Return a line without its comment; a # inside quotes, or after no blank, is none."""
    quote = ""
    for at, sign in enumerate(line):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at].rstrip()
    return line.rstrip()


def _bare(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def hcl(text: str) -> list[Entry]:
    """Return the entries of a Terraform file. A block is a part of the path: `resource aws_x.name`; a second
    block of one name in the same place is told apart by its line."""
    entries: list[Entry] = []
    stack: list[str] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)(#|//).*$", "", raw)
        block = _BLOCK.match(line)
        if block is not None and len(stack) < DEPTH_MAX:
            labels = ".".join(re.findall(r'"([^"]*)"', block[2]))
            part = f"{block[1]} {labels}" if labels else f"{block[1]}@{number}"
            stack.append(part)
            entries.append(Entry(tuple(stack), "", number))
            continue
        pair = _ATTRIBUTE.match(line)
        if pair is not None:
            entries.append(Entry((*stack, pair[1]), _bare(pair[2]), number))
        for sign in re.sub(r'"[^"]*"', "", line):
            if sign == "}" and stack:
                stack.pop()
            elif sign == "{" and len(stack) < DEPTH_MAX:
                stack.append(f"@{number}")
    return entries


def value_of(entries: list[Entry], *path: str) -> Entry | None:
    """Return the entry at a path, None when there is none; `*` stands for any one part."""
    return next((one for one in entries if _is(one.path, path)), None)


def all_of(entries: list[Entry], *path: str) -> list[Entry]:
    """Return every entry at a path; `*` stands for any one part."""
    return [one for one in entries if _is(one.path, path)]


def below(entries: list[Entry], path: tuple[str, ...]) -> list[Entry]:
    """Return what stands at a path and below it."""
    return [one for one in entries if one.path[: len(path)] == path]


def _is(path: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return len(path) == len(wanted) and all(w in ("*", p) for p, w in zip(path, wanted, strict=True))


def number_of(entry: Entry | None) -> float | None:
    """Return the number an entry holds, None for none or another."""
    if entry is None:
        return None
    try:
        found = float(entry.value)
    except ValueError:
        return None
    return found if found == found and abs(found) < 1e15 else None
