"""What `submit` reads: one JSON document or many lines, from the argument, a file or standard input."""

import codecs
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple, NoReturn

from forebay.cli.show import Stop, clean

DOCUMENT_MAX_B = 8 * 1024 * 1024  # one payload; the server's own limit is usually lower
READ_B = 64 * 1024
MANY_NAMES = (".ndjson", ".jsonl")


class Row(NamedTuple):
    """One line of many: its number from 1, and its JSON text, or why it cannot be sent."""

    number: int
    text: bytes
    problem: str | None = None


class Input(NamedTuple):
    """What there is to submit: `one` payload, or `many` lines. `name` is empty for what has no identity."""

    one: bytes | None
    many: Iterator[Row] | None
    name: str
    blob: str | None = None  # path of a file that is sent as it is
    media_type: str | None = None


def open_input(given: str | None, many: bool | None) -> Input:
    """Return what the PAYLOAD argument means: JSON, lines, or, of a file that is no text or a JSON document
    above DOCUMENT_MAX_B, `blob`. Raises Stop for what cannot be read or is not JSON.

    `many` None decides by the rule: names that end in .ndjson or .jsonl are lines; else a text whose first
    line is a whole JSON document, with more lines after it, is lines; anything else is one document.
    """
    if given is None:
        raise Stop("PAYLOAD is missing; use - for standard input, or null for none", 2)
    if not (given == "-" or given.startswith("@")):
        text = given.encode("utf-8", "surrogateescape")
        _check_argument(given, text)
        return Input(None, iter([Row(1, _one_line(text))]), "") if many else Input(text, None, "")
    path = "-" if given == "-" else given[1:]
    descriptor = open_path(path)
    if not many and _is_blob(descriptor, path):
        os.close(descriptor)
        return Input(None, None, "", path, "application/json" if path.endswith(".json") else None)
    lines = _lines(descriptor)
    name = "" if path == "-" else os.path.realpath(path)
    if many or (many is None and path.endswith(MANY_NAMES)):
        return Input(None, _rows(lines), name)
    first = [line for line in _some(lines, 2) if line is not None]
    alone = len(first) == 2 and problem_of(first[0]) is None
    if many is None and alone:
        return Input(None, _rows(_chain(first, lines)), name)
    text = _whole(_chain(first, lines), path)
    problem = problem_of(text)
    if problem is not None:
        what = "standard input" if path == "-" else path
        raise Stop(f"{what} is not one JSON document ({problem}); for one job per line say --ndjson", 2)
    return Input(text, None, name)


def problem_of(text: bytes) -> str | None:
    """Return why text is not a JSON document, None when it is one."""
    try:
        json.loads(text.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        return "not UTF-8"
    except RecursionError:
        return "nested too deeply"
    except json.JSONDecodeError as error:
        return f"{error.msg.lower()} at character {error.pos + 1}"
    except ValueError as error:
        return str(error).split(";")[0][:100]
    return None


def key_of(prefix: str | None, name: str, number: int, body: bytes) -> str:
    """Return the idempotency key of one line: the same line of the same file always has the same one."""
    if prefix is not None:
        return f"{prefix}-{number}"
    seed = b"\0".join((name.encode("utf-8", "surrogateescape"), str(number).encode(), body))
    return hashlib.sha256(seed).hexdigest()[:40]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_argument(given: str, text: bytes) -> None:
    problem = problem_of(text)
    if problem is not None:
        quoted = json.dumps(given)
        hint = f"; for a text write '{quoted}'" if len(quoted) < 200 else ""
        raise Stop(f"PAYLOAD is not JSON ({problem}): {clean(given, 100)}{hint}", 2)


def open_path(path: str) -> int:
    """Return a descriptor of a file, or of standard input for "-". Raises Stop."""
    if path == "-":
        return 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Stop(f"cannot read {path!r}: {error.strerror}", 2) from None
    except ValueError:
        raise Stop(f"cannot read {path!r}: not a path", 2) from None
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Stop(f"cannot read {path!r}: it is a directory", 2)
    return descriptor


def _is_blob(descriptor: int, path: str) -> bool:
    """Say whether a file is sent as it is: it begins with what no text has, or is a large .json."""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        return False
    if path.endswith(".json"):
        return about.st_size > DOCUMENT_MAX_B
    if path.endswith(MANY_NAMES):
        return False
    head = os.pread(descriptor, READ_B, 0)
    if b"\0" in head:
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return True
    return False


def _lines(descriptor: int) -> Iterator[bytes | None]:
    """Yield the lines of a file without their ends; None for one that is longer than DOCUMENT_MAX_B."""
    return lines_of(parts_of(descriptor), DOCUMENT_MAX_B)


def parts_of(descriptor: int) -> Iterator[bytes]:
    """Yield a file in pieces.

    Closes it at the end, or when nobody wants more. Reads the descriptor itself: a thread that is left inside
    a buffered standard input would keep its lock to the end of the process, and the interpreter's last flush
    with it.
    """
    try:
        while part := os.read(descriptor, READ_B):
            yield part
    finally:
        if descriptor:
            os.close(descriptor)


def lines_of(parts: Iterable[bytes], most: int) -> Iterator[bytes | None]:
    """Yield the lines of a text that comes in pieces, without their ends; None for one longer than `most`."""
    rest, skipping = b"", False
    for part in chain(parts, (b"",)):
        *whole, last = part.split(b"\n")
        if whole:
            whole[0] = rest + whole[0]
            rest = last
            if skipping:
                whole, skipping = whole[1:], False
            yield from (line if len(line) <= most else None for line in whole)
        elif not skipping:
            rest += last
        if len(rest) > most:
            rest, skipping = b"", True
            yield None  # at once: it may have no end
    if rest:
        yield rest


def _rows(lines: Iterator[bytes | None]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if line is None:
            yield Row(number, b"", f"longer than {DOCUMENT_MAX_B} bytes")
            continue
        text = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
        if text:
            problem = problem_of(text)
            yield Row(number, text, None if problem is None else f"not JSON: {problem}")


def _some(lines: Iterator[bytes | None], count: int) -> list[bytes | None]:
    """Return lines up to the nth that is not blank, blank ones left in place as empty lines."""
    found: list[bytes | None] = []
    for line in lines:
        if line is None:
            raise Stop(f"a line is longer than {DOCUMENT_MAX_B} bytes", 1)
        if line.strip():
            found.append(line)
        if len(found) >= count:
            break
    return found


def _chain(first: list[bytes], rest: Iterator[bytes | None]) -> Iterator[bytes | None]:
    yield from first
    yield from rest


def _whole(lines: Iterator[bytes | None], path: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    for line in lines:
        size += 0 if line is None else len(line) + 1
        if line is None or size > DOCUMENT_MAX_B:
            what = "standard input" if path == "-" else repr(path)
            raise Stop(f"{what} is larger than {DOCUMENT_MAX_B} bytes", 1)
        parts.append(line)
    text = b"\n".join(parts).removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        raise Stop("there is nothing to submit: the input is empty", 2)
    return text


def _one_line(text: bytes) -> bytes:
    """Return a JSON document on one line: raw line ends can only be white space in it."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")
