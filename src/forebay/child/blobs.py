"""The blobs of a child: what payloads name is opened, what outputs hold is stored."""

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from forebay.core.blobs import (
    BLOB_MARK,
    CHANCE_BYTES,
    JSON_TYPE,
    SIGN,
    BlobInfo,
    BlobTerms,
    belongs,
    is_id,
    named,
    new_id,
    reference_of,
)
from forebay.declare.blob import READ_B, Blob, Facts, work_with
from forebay.errors import BlobCorruptError, BlobRefusedError, TooLargeError
from forebay.node.frames import RunItem

if TYPE_CHECKING:
    from forebay.blobs.cache import BlobCache, Cached

VERIFIED_MAX: Final = 10_000  # files whose digest was looked at, remembered


_NOTHING: Final[frozenset[str]] = frozenset()


class ChildBlobs:
    """Follows references and stores outputs for the item that is decoded or finished right now."""

    def __init__(self, terms: BlobTerms) -> None:
        self._terms = terms
        self._opened: Any = None
        self._cached: BlobCache | None = None
        self._named: frozenset[str] = frozenset()
        self._tenant = ""
        self._verified: dict[str, tuple[int, int, int]] = {}
        work_with(self.follow, self.keep)

    @property
    def store(self) -> Any:
        """The store, opened when it is first needed."""
        if self._opened is None:
            from forebay.blobs.opening import open_blobs

            self._opened = open_blobs(self._terms.place, reserve_b=self._terms.reserve_b)
        return self._opened

    @property
    def cache(self) -> "BlobCache":
        """The files of what was fetched."""
        if self._cached is None:
            from forebay.blobs.cache import BlobCache

            self._cached = BlobCache(self._terms.cache, self._terms.cache_bytes_max)
        return self._cached

    # -- in ----------------------------------------------------------------------------------------

    def enter(self, item: RunItem) -> bool:
        """Let the references of this item's payload be followed; return whether it has any."""
        self._tenant = item.tenant
        if SIGN not in item.payload or BLOB_MARK not in item.payload:
            self._named = _NOTHING
            return False
        self._named = frozenset(named(item.payload))
        return True

    def text_of(self, item: RunItem, *, takes_blob: bool) -> bytes:
        """Return the JSON text of the payload: of one that is in a blob as a whole, what is in the blob.

        Raises BlobCorruptError, or TooLargeError for more than payloads may be.
        """
        reference = reference_of(msgspec.json.decode(item.payload))
        if takes_blob or not is_id(reference):
            return item.payload
        blob = self.follow({"$blob": reference})
        if blob.media_type.partition(";")[0] != JSON_TYPE:
            return item.payload
        if blob.size > self._terms.payload_bytes_max:
            raise TooLargeError(f"the payload is {blob.size} bytes (payload_bytes_max)")
        return blob.read()

    def resolve(self, value: Any) -> Any:
        """Return decoded JSON of a task without types, with Blobs in place of references."""
        if isinstance(value, dict):
            if is_id(reference_of(value)):  # pyright: ignore[reportUnknownArgumentType]
                return self.follow(value)  # pyright: ignore[reportUnknownArgumentType]
            return {key: self.resolve(inner) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, list):
            return [self.resolve(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
        return value

    def follow(self, value: object) -> Blob:
        """Return the Blob of a decoded reference.

        Raises ValueError for what is none, and BlobRefusedError for one that the payload may not have.
        """
        if isinstance(value, str):
            from forebay.blobs.fetch import check_source

            check_source(value, self._terms.sources)
            return Blob(_Fetched(self, value))
        blob_id = reference_of(value)
        if not is_id(blob_id):
            raise ValueError('a blob is {"$blob": id}, or an https://, s3:// or gs:// reference')
        blob_id = str(blob_id)
        if blob_id not in self._named or not belongs(blob_id, self._tenant):
            raise BlobRefusedError("a reference that the door did not see; write $blob without escapes")
        return Blob(_Stored(self, blob_id), blob_id)

    # -- out ---------------------------------------------------------------------------------------

    def keep(self, blob: Blob) -> str:
        """Store what an output holds and return its id.

        Raises TooLargeError, StoreFullError or StoreUnavailableError.
        """
        with blob.open() as file:
            return self._store(iter(lambda: file.read(READ_B), b""), blob.media_type)

    def keep_text(self, text: bytes) -> bytes:
        """Store a JSON output that is too large for the record; return the reference to it."""
        return b'{"$blob":"%b"}' % self._store(iter((text,)), JSON_TYPE).encode()

    def _store(self, pieces: Iterator[bytes], media_type: str) -> str:
        now = time.time()
        blob_id = new_id(self._tenant, now=now, chance=os.urandom(CHANCE_BYTES))
        writer = self.store.begin(blob_id, media_type)
        size = 0
        try:
            for part in pieces:
                size += len(part)
                if size > self._terms.bytes_max:
                    raise TooLargeError(
                        f"a blob is at most {self._terms.bytes_max} bytes (blob_bytes_max)",
                        limit=self._terms.bytes_max,
                    )
                writer.write(part)
            writer.commit()
        except BaseException:
            writer.abort()
            raise
        return blob_id

    # -- files -------------------------------------------------------------------------------------

    def head(self, blob_id: str) -> BlobInfo:
        """Return what is known of a blob. Raises BlobCorruptError when it is gone."""
        info: BlobInfo | None = self.store.head(blob_id)
        if info is None:
            raise BlobCorruptError(f"blob {blob_id} is gone")
        return info

    def file_of(self, info: BlobInfo) -> "tuple[str, Cached | None]":
        """Return a file with the bytes, held to their digest, and what keeps it from the cache's broom."""
        path: str | None = self.store.path(info.id)
        if path is not None:
            self._verify(path, info)
            return path, None
        cached = self.cache.get(info.id, lambda: self._pieces(info), sha256=info.sha256)
        return cached.path, cached

    def fetch(self, url: str) -> "tuple[str, Cached]":
        """Return the media type and a file of what a reference to elsewhere points to."""
        from forebay.blobs.fetch import fetch

        kind, pieces = fetch(url, sources=self._terms.sources, bytes_max=self._terms.bytes_max)
        return kind, self.cache.get(None, lambda: pieces)

    def _pieces(self, info: BlobInfo) -> Iterator[bytes]:
        at = 0
        while at < info.size:
            part: bytes = self.store.read(info.id, at, 8 * READ_B)
            if not part:
                raise BlobCorruptError(f"blob {info.id} ends too early")
            at += len(part)
            yield part

    def _verify(self, path: str, info: BlobInfo) -> None:
        """Hold the file to its digest, once as long as it is not touched."""
        import hashlib

        try:
            with open(path, "rb") as file:
                about = os.fstat(file.fileno())
                mark = (about.st_ino, about.st_mtime_ns, about.st_size)
                if self._verified.get(info.id) == mark:
                    return
                good = about.st_size == info.size
                good = good and hashlib.file_digest(file, "sha256").hexdigest() == info.sha256
        except OSError as error:
            raise BlobCorruptError(f"blob {info.id} cannot be read: {error.strerror}") from None
        if not good:
            raise BlobCorruptError(f"the bytes of blob {info.id} are not those that were stored")
        if len(self._verified) >= VERIFIED_MAX:
            self._verified.clear()
        self._verified[info.id] = mark


class _Stored:
    """A blob of this system."""

    def __init__(self, blobs: ChildBlobs, blob_id: str) -> None:
        self._blobs = blobs
        self._id = blob_id
        self._info: BlobInfo | None = None
        self._file: tuple[str, Cached | None] | None = None

    def facts(self) -> Facts:
        if self._info is None:
            self._info = self._blobs.head(self._id)
        return Facts(self._info.size, self._info.sha256, self._info.media_type)

    def path(self) -> str:
        self.facts()
        assert self._info is not None
        if self._file is None:
            self._file = self._blobs.file_of(self._info)
        return self._file[0]


class _Fetched:
    """Bytes from elsewhere, fetched when first asked for, gone with this object."""

    def __init__(self, blobs: ChildBlobs, url: str) -> None:
        self._blobs = blobs
        self._url = url
        self._facts: Facts | None = None
        self._file: Cached | None = None

    def facts(self) -> Facts:
        if self._facts is None:
            kind, self._file = self._blobs.fetch(self._url)
            import weakref

            weakref.finalize(self, _unlink, self._file.path)
            import hashlib

            with open(self._file.path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            self._facts = Facts(os.path.getsize(self._file.path), digest, kind)
        return self._facts

    def path(self) -> str:
        self.facts()
        assert self._file is not None
        return self._file.path

    def __repr__(self) -> str:
        return self._url.partition("?")[0]  # what is behind it may be a signature


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
