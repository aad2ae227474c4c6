"""Vault: seals and opens texts with AES-256-GCM, each tenant under a key of its own; keys can be rotated."""

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from forebay.core.blobs import named
from forebay.errors import ConfigError, SealedError
from forebay.keys import PAYLOAD_KEY_BYTES, payload_keys

_NONCE_BYTES: Final = 12
_TENANTS_CACHED_MAX: Final = 1_024
_JSON_HEAD: Final = b'{"$sealed":"'
_TEXT_HEAD: Final = "sealed:"
_SEALED_JSON: Final = re.compile(rb'\{"\$sealed":"([0-9a-f]{8})\.([A-Za-z0-9_-]+)"')
_SEALED_TEXT: Final = re.compile(r"sealed:([0-9a-f]{8})\.([A-Za-z0-9_-]+)", re.ASCII)
_BLIND: Final = b"forebay digest "  # keys of digests are no keys of payloads


MARK: Final = "sealed"  # in the directory of a store that was opened with keys


def vault_for(directory: Path, keys: str | None) -> "Vault | None":
    """Return the vault of a store for the setting payload_keys, None without it on a store that never had it.

    Raises ConfigError for what are no keys, and for a store that holds sealed jobs and gets none.
    """
    if keys is not None:
        return Vault(payload_keys(keys))
    if (directory / MARK).exists():
        raise ConfigError(
            f"payload_keys: {directory} holds encrypted jobs: set the keys they were sealed with"
        )
    return None


class Vault:
    """Seals with the first of its keys and opens with any.

    A sealed text is bound to its job and its place there: moved elsewhere it does not open. Blobs that it
    names stay named in plain, because the store keeps them by that.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._masters = {hashlib.sha256(b"forebay key id" + key).hexdigest()[:8]: key for key in keys}
        self._first = next(iter(self._masters))
        self._ciphers: dict[tuple[str, str], Any] = {}
        try:
            from cryptography.hazmat.primitives.ciphers import aead
        except ImportError:
            raise ConfigError("payload_keys need a library: pip install 'forebay[crypto]'") from None
        self._aead = aead

    def mark(self, directory: Path) -> None:
        """Leave word in the directory of a store that it holds sealed jobs."""
        (directory / MARK).touch(mode=0o600)

    def seal(self, text: bytes, *, tenant: str, bound: str) -> bytes:
        """Return the sealed JSON text; the text itself when it is sealed already."""
        if is_sealed(text):
            return text
        blobs = ",".join(f'{{"$blob":"{blob}"}}' for blob in named(text))
        tail = f'","blobs":[{blobs}]}}' if blobs else '"}'
        return _JSON_HEAD + self._sealed(text, tenant, bound).encode() + tail.encode()

    def open(self, text: bytes, *, tenant: str, bound: str) -> bytes:
        """Return what was sealed; a text that is not sealed as it is. Raises SealedError."""
        if not text.startswith(_JSON_HEAD):
            return text
        found = _SEALED_JSON.match(text)
        if found is None:
            return text
        return self._opened(found[1].decode(), found[2], tenant, bound)

    def seal_words(self, words: str, *, tenant: str, bound: str) -> str:
        """Return sealed words, for places that hold no JSON."""
        if not words or words.startswith(_TEXT_HEAD):
            return words
        return _TEXT_HEAD + self._sealed(words.encode(errors="surrogatepass"), tenant, bound)

    def open_words(self, words: str, *, tenant: str, bound: str) -> str:
        """Return what was sealed; words that are not sealed as they are. Raises SealedError."""
        found = _SEALED_TEXT.fullmatch(words) if words.startswith(_TEXT_HEAD) else None
        if found is None:
            return words
        return self._opened(found[1], found[2].encode(), tenant, bound).decode(errors="surrogatepass")

    def blind(self, digest: bytes) -> list[bytes]:
        """Return, for each key, a keyed digest in place of one that could be found by trying."""
        size = len(digest)
        keys = self._masters.values()
        return [hashlib.blake2b(digest, key=_BLIND + key, digest_size=size).digest() for key in keys]

    def _sealed(self, text: bytes, tenant: str, bound: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher(self._first, tenant).encrypt(nonce, text, bound.encode())
        return f"{self._first}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

    def _opened(self, name: str, text: bytes, tenant: str, bound: str) -> bytes:
        if name not in self._masters:
            raise SealedError(f"this job is encrypted with key {name}, which is not among payload_keys")
        raw = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
        try:
            opened: bytes = self._cipher(name, tenant).decrypt(
                raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], bound.encode()
            )
        except Exception:  # the library's own kind of error says nothing at all
            raise SealedError(f"this job does not open with key {name}: it was changed or moved") from None
        return opened

    def _cipher(self, name: str, tenant: str) -> Any:
        cipher = self._ciphers.get((name, tenant))
        if cipher is None:
            if len(self._ciphers) >= _TENANTS_CACHED_MAX:
                self._ciphers.clear()
            cipher = self._ciphers[name, tenant] = self._aead.AESGCM(_derived(self._masters[name], tenant))
        return cipher


def is_sealed(text: bytes) -> bool:
    """Say whether this is a sealed JSON text."""
    return text.startswith(_JSON_HEAD) and _SEALED_JSON.match(text) is not None


def _derived(master: bytes, tenant: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), PAYLOAD_KEY_BYTES, salt=None, info=b"forebay payload " + tenant.encode()).derive(
        master
    )
