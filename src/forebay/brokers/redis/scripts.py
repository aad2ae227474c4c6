"""Scripts: one of Lua for each verb, sent once to a server and called by its hash from then on."""

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final, NamedTuple

READS: Final = frozenset({
    "delivery", "depth", "find", "former", "get", "gone", "held", "keys", "look", "marks", "nodes", "page",
    "position", "queued", "recall", "rest", "still", "stones", "tasks", "waits",
})  # fmt: skip
# What a server that has no memory left must still do, or nothing would ever end and be removed.
FREEING: Final = frozenset({
    "cancel", "claim", "commit", "delivered", "extend", "grant", "lease", "left", "probe", "purge", "sweep",
    "tap", "told", "unmark",
})  # fmt: skip
# What a store answers also after its jobs began to be moved elsewhere.
ALWAYS: Final = READS | {"aside", "left", "probe", "seal", "secret", "told", "unseal"}
_GRANTING: Final = frozenset({"enqueue", "grant", "lease"})


class Script(NamedTuple):
    """One script."""

    text: bytes
    sha: str


@cache
def script(name: str) -> Script:
    """Return the script of a verb."""
    flags = " flags=no-writes" if name in READS else " flags=allow-oom" if name in FREEING else ""
    before = [*(() if name in ALWAYS else ["sealed"]), *(["granting"] if name in _GRANTING else ())]
    parts = [name] if name == "probe" else ["lib", *before, name]
    folder = files("forebay.brokers.redis") / "lua"
    text = "".join([f"#!lua{flags}\n", *((folder / f"{part}.lua").read_text() for part in parts)]).encode()
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())
