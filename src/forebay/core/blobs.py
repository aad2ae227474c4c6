"""Blobs, the rules: what an id is made of, whose it is, and which ones a JSON text names.

A reference in JSON is an object whose only member is `$blob`, with an id as its value.
"""

import re
from typing import NamedTuple, cast

MEDIA_TYPE = "application/octet-stream"  # of bytes nobody said anything about
JSON_TYPE = "application/json"
_TAG_LENGTH = 12
_TIME_LENGTH = 12
_CHANCE_LENGTH = 32
ID_LENGTH = _TAG_LENGTH + _TIME_LENGTH + _CHANCE_LENGTH  # characters, 0-9 and a-f
CHANCE_BYTES = _CHANCE_LENGTH // 2
_ID = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}", re.ASCII)
BLOB_SCHEMA_MARK = "x-forebay-blob"  # member of the JSON Schema of a Blob
SIGN = b"$"  # looked for first: one byte is found thirty times faster than a word
BLOB_MARK = b'"$blob"'
# In a JSON text a quote inside a string has a backslash before it, so this finds members only.
_NAMED = re.compile(rb'"\$blob"[ \t\r\n]*:[ \t\r\n]*"([0-9a-f]{%d})"' % ID_LENGTH)


class BlobInfo(NamedTuple):
    """What is known of a whole blob."""

    id: str
    size: int  # bytes
    sha256: str  # hexadecimal
    media_type: str = MEDIA_TYPE


class BlobTerms(NamedTuple):
    """Where a child reads and stores blobs, and its bounds."""

    place: str  # a directory or a URL
    cache: str  # directory of what is fetched
    bytes_max: int = 5 << 30  # of one blob
    payload_bytes_max: int = 64 << 20  # of a JSON payload in a blob
    cache_bytes_max: int = 10 << 30
    reserve_b: int = 0
    sources: tuple[str, ...] = ()  # places that references may point to


def tag_of(tenant: str) -> str:
    """Return the first characters of every id of this tenant."""
    from hashlib import blake2b  # milliseconds that a child without blobs need not pay

    return blake2b(tenant.encode(), digest_size=_TAG_LENGTH // 2).hexdigest()


def new_id(tenant: str, *, now: float, chance: bytes) -> str:
    """Return the id of one new blob. `chance` is CHANCE_BYTES that nobody can guess: whoever does not know
    an id cannot make one up, and none is ever made twice."""
    assert len(chance) == CHANCE_BYTES
    return f"{tag_of(tenant)}{max(0, int(now * 1000)):012x}{chance.hex()}"


def is_id(text: object) -> bool:
    """Say whether this has the form of an id. Nothing else ever becomes part of a path or a key."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def belongs(blob_id: str, tenant: str) -> bool:
    """Say whether the id was given to this tenant."""
    return blob_id.startswith(tag_of(tenant))


def created_at(blob_id: str) -> float:
    """Return when the id was made, in seconds since the epoch."""
    return int(blob_id[_TAG_LENGTH : _TAG_LENGTH + _TIME_LENGTH], 16) / 1000


def named(text: bytes | None) -> tuple[str, ...]:
    """Return the ids that a JSON text names, each once. May name too many (an object with other members
    beside `$blob`), never too few, as long as `$blob` is written without escapes."""
    if text is None or SIGN not in text or BLOB_MARK not in text:
        return ()
    return tuple(dict.fromkeys(found.decode() for found in _NAMED.findall(text)))


def reference_of(value: object) -> object:
    """Return what a decoded reference names (to be checked by `is_id`), None when it is no reference."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        if len(members) == 1:
            return members.get("$blob")
    return None
