"""Blob: large bytes by reference, as a handler gets them and as it may return them."""

# Children import this whether or not they have blobs, so what costs milliseconds is imported on use.
import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

MEDIA_TYPE = "application/octet-stream"  # when nobody says otherwise
READ_B = 1024 * 1024
Source = bytes | bytearray | memoryview | str | os.PathLike[str]

# Of a field that is annotated with Blob.
SCHEMA: dict[str, Any] = {
    "title": "Blob",
    "x-forebay-blob": True,
    "description": "A stored blob, or where to fetch the bytes from",
    "anyOf": [
        {
            "type": "object",
            "properties": {"$blob": {"type": "string", "pattern": "^[0-9a-f]{56}$"}},
            "required": ["$blob"],
            "additionalProperties": False,
        },
        {"type": "string", "pattern": "^(https?|s3|gs)://[^/?#]+/", "maxLength": 2048},
    ],
}


class Facts(NamedTuple):
    """What is known of the bytes."""

    size: int
    sha256: str
    media_type: str


class Origin(Protocol):
    """Where the bytes of one Blob are."""

    def facts(self) -> Facts:
        """Return size, digest and media type."""
        ...

    def path(self) -> str:
        """Return a file that holds the bytes, as long as this origin lives."""
        ...


class Blob:
    """Large bytes by reference.

    Annotate a field, or the whole payload, with it, and a submission holds `{"$blob": id}` there, or an
    https://, s3:// or gs:// reference. What is fetched is fetched when it is first asked for. Return one made
    by `of` anywhere in an output.
    """

    __slots__ = ("_origin", "id")

    def __init__(self, origin: Origin, blob_id: str | None = None) -> None:
        self._origin = origin
        self.id = blob_id  # None: not stored (yet)

    @classmethod
    def of(cls, source: Source, media_type: str | None = None) -> "Blob":
        """Return a Blob of bytes, or of the file at a path, which is read when the output is stored.

        Without a media type: by the file's name, else application/octet-stream.
        """
        if isinstance(source, bytes | bytearray | memoryview):
            return cls(_Held(bytes(source), media_type or MEDIA_TYPE))
        import mimetypes

        path = os.fspath(source)
        return cls(_Filed(path, media_type or mimetypes.guess_type(path)[0] or MEDIA_TYPE))

    @classmethod
    def from_json(cls, value: object) -> "Blob":
        """Return the Blob that a decoded reference stands for. Raises ValueError outside of a worker, and
        for what is no reference."""
        if isinstance(value, cls):
            return value
        return _worker.open(value)

    @property
    def path(self) -> "Path":
        """A file that holds the bytes: read it, do not change it. Good while this Blob lives."""
        from pathlib import Path

        return Path(self._origin.path())

    @property
    def size(self) -> int:
        """Bytes."""
        return self._origin.facts().size

    @property
    def sha256(self) -> str:
        """The digest, hexadecimal."""
        return self._origin.facts().sha256

    @property
    def media_type(self) -> str:
        """What the bytes are, like "audio/wav", as whoever stored them said."""
        return self._origin.facts().media_type

    def open(self) -> BinaryIO:
        """Return the bytes as an open file."""
        if isinstance(self._origin, _Held):
            return io.BytesIO(self._origin.data)
        return open(self._origin.path(), "rb")

    def read(self) -> bytes:
        """Return all bytes."""
        with self.open() as file:
            return file.read()

    def reference(self) -> dict[str, str]:
        """Return `{"$blob": id}`, storing the bytes first where that is still to be done.

        Raises ValueError outside of a worker, StoreFullError or StoreUnavailableError when they cannot be
        stored.
        """
        if self.id is None:
            self.id = _worker.keep(self)
        return {"$blob": self.id}

    def __repr__(self) -> str:
        return f"Blob({self.id or self._origin!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let models of pydantic have fields of this type."""
        core_schema: Any = sys.modules["pydantic_core.core_schema"]  # whoever asks is pydantic
        return core_schema.no_info_plain_validator_function(
            cls.from_json,
            serialization=core_schema.plain_serializer_function_ser_schema(cls.reference),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        """Describe it there as everywhere."""
        return dict(SCHEMA)


class _Held:
    """Bytes in memory."""

    def __init__(self, data: bytes, media_type: str) -> None:
        self.data = data
        self._media_type = media_type
        self._path: str | None = None

    def facts(self) -> Facts:
        import hashlib

        return Facts(len(self.data), hashlib.sha256(self.data).hexdigest(), self._media_type)

    def path(self) -> str:
        if self._path is None:
            import tempfile
            import weakref

            handle, self._path = tempfile.mkstemp(prefix="blob-")
            weakref.finalize(self, _unlink, self._path)
            with os.fdopen(handle, "wb") as file:
                file.write(self.data)
        return self._path

    def __repr__(self) -> str:
        return f"{len(self.data)} bytes"


class _Filed:
    """A file of the handler's own."""

    def __init__(self, path: str, media_type: str) -> None:
        self._path = path
        self._media_type = media_type

    def facts(self) -> Facts:
        import hashlib

        digest, size = hashlib.sha256(), 0
        with open(self._path, "rb") as file:
            while part := file.read(READ_B):
                digest.update(part)
                size += len(part)
        return Facts(size, digest.hexdigest(), self._media_type)

    def path(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return self._path


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _no_worker(_: object) -> Any:
    raise ValueError("a reference can be followed, and an output stored, in a worker only")


class _Worker:
    """How this process follows references and stores outputs; set once, by a child."""

    def __init__(self) -> None:
        self.open: Callable[[object], Blob] = _no_worker
        self.keep: Callable[[Blob], str] = _no_worker


_worker = _Worker()


def work_with(follow: Callable[[object], Blob], keep: Callable[[Blob], str]) -> None:
    """Say how references are followed and outputs stored in this process."""
    _worker.open, _worker.keep = follow, keep
