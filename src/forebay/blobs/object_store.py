"""ObjectBlobs: blobs in S3, Google Cloud Storage or Azure, by their URL; needs the extra of that cloud.

`<tag>/<id>` holds the bytes and `<id>.json` beside it what is known of them, written last. Credentials come
from the environment, as those clouds' own tools read them.
"""

import hashlib
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from forebay.core.blobs import BlobInfo, is_id
from forebay.errors import ConfigError, NotFoundError, StoreUnavailableError

EXTRAS: Final = {"s3": "s3", "gs": "gcs", "az": "azure", "azure": "azure", "abfs": "azure"}
ABOUT: Final = ".json"
_TAG: Final = 12
PART_B: Final = 8 * 1024 * 1024  # of one multi-part upload: what a writer holds in memory
RETRY_S: Final = 1.0


def obstore_for(scheme: str) -> Any:
    """Return the module `obstore`. Raises ConfigError naming the extra that brings it."""
    try:
        import obstore
    except ImportError:
        extra = EXTRAS.get(scheme, "s3")
        raise ConfigError(f'blobs: {scheme}:// needs an extra: pip install "forebay[{extra}]"') from None
    return obstore


class ObjectBlobs:
    """A ports.blobs.BlobStore on `url`, like s3://bucket/prefix. Raises ConfigError for one it cannot use."""

    def __init__(self, url: str) -> None:
        scheme = url.partition(":")[0]
        self._obs = obstore_for(scheme)
        from obstore.store import from_url

        try:
            self._store: Any = from_url(url)
        except Exception as error:
            raise ConfigError(f"blobs: {url}: {_line(error)}") from None

    def begin(self, blob_id: str, media_type: str) -> "ObjectWriter":
        """Return a writer of a new blob. Raises StoreUnavailableError."""
        assert is_id(blob_id)
        return ObjectWriter(self, blob_id, media_type)

    def head(self, blob_id: str) -> BlobInfo | None:
        """Return what is known of a blob, None when there is none."""
        if not is_id(blob_id):
            return None
        try:
            about = json.loads(bytes(self._obs.get(self._store, _key(blob_id) + ABOUT).bytes()))
            return BlobInfo(blob_id, int(about["size"]), str(about["sha256"]), str(about["media_type"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise StoreUnavailableError(f"what is known of blob {blob_id} cannot be read") from None
        except Exception as error:
            raise _failed(error) from None

    def read(self, blob_id: str, start: int, size: int) -> bytes:
        """Return up to `size` bytes from `start`. Raises NotFoundError."""
        if not is_id(blob_id):
            raise NotFoundError("no blob has this id")
        try:
            there = int(self._obs.head(self._store, _key(blob_id))["size"])
            if start >= there or size <= 0:
                return b""
            part = self._obs.get_range(self._store, _key(blob_id), start=start, end=min(there, start + size))
            return bytes(part)
        except FileNotFoundError:
            raise NotFoundError("no blob has this id") from None
        except Exception as error:
            raise _failed(error) from None

    def path(self, blob_id: str) -> str | None:
        """Return None: there are no files here."""
        return None

    def link(self, blob_id: str, ttl_s: float) -> str | None:
        """Return the cloud's presigned URL; None where its credentials cannot sign."""
        if not is_id(blob_id):
            return None
        try:
            return str(self._obs.sign(self._store, "GET", _key(blob_id), timedelta(seconds=ttl_s)))
        except Exception:
            return None  # some kinds of credentials cannot, and the server's own link does as well

    def delete(self, blob_id: str) -> bool:
        """Forget a blob; False when there was none."""
        if not is_id(blob_id):
            return False
        there = False
        for end in (ABOUT, ""):
            try:
                self._obs.head(self._store, _key(blob_id) + end)
                self._obs.delete(self._store, _key(blob_id) + end)
                there = True
            except FileNotFoundError:
                pass
            except Exception as error:
                raise _failed(error) from None
        return there

    def ids(self) -> Iterator[str]:
        """Yield the id of every object that looks like a blob's bytes."""
        try:
            for chunk in self._obs.list(self._store):
                for entry in chunk:
                    name = str(entry["path"]).rpartition("/")[2]
                    if is_id(name):
                        yield name
        except Exception as error:
            raise _failed(error) from None

    def clear_unfinished(self, before: float) -> int:
        """Return 0: unfinished multi-part uploads are for a lifecycle rule of the bucket to end."""
        return 0

    def put(self, key: str, data: bytes, media_type: str) -> None:
        """Write one small object."""
        try:
            self._obs.put(self._store, key, data, attributes={"Content-Type": media_type})
        except Exception as error:
            raise _failed(error) from None

    def writer(self, key: str, media_type: str) -> Any:
        """Return a multi-part writer."""
        try:
            return self._obs.open_writer(
                self._store, key, attributes={"Content-Type": media_type}, buffer_size=PART_B
            )
        except Exception as error:
            raise _failed(error) from None


class ObjectWriter:
    """A ports.blobs.BlobWriter: parts of a multi-part upload, and the little object that makes it a blob."""

    def __init__(self, store: ObjectBlobs, blob_id: str, media_type: str) -> None:
        self._store = store
        self._id = blob_id
        self._media_type = media_type
        self._digest = hashlib.sha256()
        self._size = 0
        self._writer: Any = None
        self._small: list[bytes] = []  # no multi-part upload for what fits into one part
        self._done = False

    def write(self, data: bytes) -> None:
        """Add bytes. Raises StoreUnavailableError."""
        self._digest.update(data)
        self._size += len(data)
        if self._writer is None:
            self._small.append(data)
            if self._size <= PART_B:
                return
            self._writer = self._store.writer(_key(self._id), self._media_type)
            data = b"".join(self._small)
            self._small = []
        try:
            self._writer.write(data)
        except Exception as error:
            raise _failed(error) from None

    def commit(self) -> BlobInfo:
        """Make it whole and durable."""
        info = BlobInfo(self._id, self._size, self._digest.hexdigest(), self._media_type)
        if self._writer is None:
            self._store.put(_key(self._id), b"".join(self._small), self._media_type)
        else:
            try:
                self._writer.close()
            except Exception as error:
                raise _failed(error) from None
        about = {"size": info.size, "sha256": info.sha256, "media_type": info.media_type}
        self._store.put(_key(self._id) + ABOUT, json.dumps(about).encode(), "application/json")
        self._done = True
        return info

    def abort(self) -> None:
        """Forget it. Parts that were sent are never put together."""
        self._small = []
        self._writer = None
        if not self._done:
            self._done = True
            self._store.delete(self._id)


def _key(blob_id: str) -> str:
    return f"{blob_id[:_TAG]}/{blob_id}"


def _failed(error: Exception) -> StoreUnavailableError:
    return StoreUnavailableError(f"the object store failed: {_line(error)}", retry_after_s=RETRY_S)


def _line(error: Exception) -> str:
    line = " ".join(str(error).split())
    return line if len(line) <= 200 else line[:199] + "…"
