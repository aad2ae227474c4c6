"""holds_all(): what a listing's metadata filter means, the same for the reference and for every engine."""

import json
from collections.abc import Sequence


def holds_all(metadata: bytes, wanted: Sequence[tuple[str, str]]) -> bool:
    """Say whether metadata, a JSON object or nothing, holds each wanted value under its name.

    A value that is no text is compared as its shortest JSON.
    """
    if not wanted:
        return True
    if not metadata:
        return False
    held: dict[str, object] = json.loads(metadata)
    return all(name in held and _text(held[name]) == value for name, value in wanted)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
