"""Content-Digest and Repr-Digest of an upload (RFC 9530): read, computed along the way, compared."""

import binascii
import hashlib
import re
from base64 import b64decode, b64encode
from typing import Any

from forebay.errors import DigestError, MalformedError
from forebay.server.asking import Heads

_ENTRY = re.compile(r"([a-z0-9*_.-]{1,32})=:([A-Za-z0-9+/=]{1,200}):", re.ASCII)
_SIZES = {"sha-256": 32, "sha-512": 64}  # others are not looked at, as the standard has it


class Digests:
    """What the sender says the bytes hash to. Costs nothing beside the SHA-256 that is made anyway."""

    def __init__(self, wanted: dict[tuple[str, str], bytes]) -> None:
        self._wanted = wanted  # (header, algorithm) -> digest
        self._sha512: Any = None
        if any(algorithm == "sha-512" for _, algorithm in wanted):
            self._sha512 = hashlib.sha512()

    def update(self, data: bytes) -> None:
        """Take in the next bytes."""
        if self._sha512 is not None:
            self._sha512.update(data)

    def check(self, sha256: str) -> None:
        """Raise DigestError when the bytes are not what the sender said."""
        for (header, algorithm), digest in self._wanted.items():
            made: bytes = bytes.fromhex(sha256) if algorithm == "sha-256" else self._sha512.digest()
            if made != digest:
                raise DigestError(
                    f"{header}: the bytes that came have {algorithm} {b64encode(made).decode()}; "
                    "nothing was stored"
                )


def wanted_digests(heads: Heads) -> Digests:
    """Return what Content-Digest and Repr-Digest promise. Raises MalformedError for what is no digest."""
    wanted: dict[tuple[str, str], bytes] = {}
    for name in ("Content-Digest", "Repr-Digest"):
        value = heads.get(name.lower().encode())
        if value is None:
            continue
        for entry in value.decode("latin-1").split(","):
            match = _ENTRY.fullmatch(entry.strip())
            if match is None:
                raise MalformedError(f"{name} must be like sha-256=:base64:")
            if match[1] not in _SIZES:
                continue
            try:
                digest = b64decode(match[2], validate=True)
            except binascii.Error:
                raise MalformedError(f"{name}: {match[1]} is not base64") from None
            if len(digest) != _SIZES[match[1]]:
                raise MalformedError(f"{name}: {match[1]} must be {_SIZES[match[1]]} bytes long")
            wanted[name, match[1]] = digest
    return Digests(wanted)
