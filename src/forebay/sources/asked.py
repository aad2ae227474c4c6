"""Arguments of sources, checked: a mistake is one line with field, rule and value."""

import re
from typing import Any, Final
from urllib.parse import urlsplit

from forebay.core.buffer import positive_s
from forebay.core.units import size_b
from forebay.errors import ConfigError, InvalidError

STREAM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
SIDE_MAX: Final = 16_384
CHANNELS: Final = {"rgb24": 3, "bgr24": 3, "rgba": 4, "gray": 1}
_USERINFO: Final = re.compile(r"(?<=://)[^/@\s]*@")


def stream_name(value: object) -> str:
    """Return the name of a stream: 1 to 64 of `A-Za-z0-9._-`, no mark first. Raises InvalidError."""
    if isinstance(value, str) and STREAM.fullmatch(value):
        return value
    raise InvalidError(
        f"stream must be 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first, not {value!r:.80}"
    )


def frame_rate(name: str, value: object) -> float:
    """Return frames per second, above 0 and at most 100,000. Raises InvalidError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 100_000:
        return float(value)
    raise InvalidError(f"{name} must be frames per second, above 0 and at most 100000, not {value!r:.60}")


def frame_size(value: object) -> tuple[int, int] | None:
    """Return (width, height) from such a pair or "640x480"; None for None. Raises InvalidError."""
    if value is None:
        return None
    pair: Any = value
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", value)
        pair = (int(found[1]), int(found[2])) if found else None
    sides: list[Any] = list(pair) if type(pair) in (tuple, list) else []
    if len(sides) == 2 and all(type(side) is int and 1 <= side <= SIDE_MAX for side in sides):
        return (sides[0], sides[1])
    raise InvalidError(f'size must be (width, height) or "640x480", 1 to {SIDE_MAX} each, not {value!r:.60}')


def pixel_kind(value: object) -> str:
    """Return the name of a pixel layout. Raises InvalidError with those there are."""
    if isinstance(value, str) and value in CHANNELS:
        return value
    raise InvalidError(f"pixels must be one of {', '.join(CHANNELS)}, not {value!r:.60}")


def wait_s(name: str, value: object) -> float | None:
    """Return seconds, None for None. Raises InvalidError that names the field."""
    return None if value is None else positive_s(name, value)


def shape_of(size: tuple[int, int], pixels: str) -> tuple[int, ...]:
    """Return the shape of one frame as numpy has it: height, width, channels (none for gray)."""
    channels = CHANNELS[pixels]
    return (size[1], size[0]) if channels == 1 else (size[1], size[0], channels)


def shown(address: str) -> str:
    """Return an address without the name and password it may hold."""
    return _USERINFO.sub("***@", address)


def name_of(address: str) -> str:
    """Return a name for the stream of an address: the last word of its path, as far as a name may have it."""
    try:
        path = urlsplit(address).path if "://" in address else address
    except ValueError:
        path = ""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", path.rstrip("/").rpartition("/")[2]).strip("-._")
    return word[:64] or "stream"


def load(module: str, extra: str, what: str) -> Any:
    """Return the module of an extra. Raises ConfigError that names the extra where it is missing."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(f"{what} needs the extra `{extra}`: pip install 'forebay[{extra}]'") from None


def size_bytes(name: str, value: object) -> int:
    """Return bytes above zero from a number or a text like "16MiB". Raises InvalidError with the field."""
    try:
        size = size_b(value)
    except ValueError as error:
        raise InvalidError(f"{name}: {error}") from None
    if size < 1:
        raise InvalidError(f"{name} must be above zero, not {value!r}")
    return size
