"""Large bytes from and to the client: uploads, downloads, and what in a payload is uploaded by itself."""

import dataclasses
import io
import mimetypes
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, cast

from forebay.client import plans
from forebay.client.encode import Raw, to_json
from forebay.client.plans import Plan, Terms
from forebay.client.records import BlobRef
from forebay.client.wire import Call, View
from forebay.core.blobs import JSON_TYPE, MEDIA_TYPE, is_id, reference_of
from forebay.errors import InvalidError

PIECE_B = 1024 * 1024
PAYLOAD_INLINE_MAX_B = 768 * 1024  # a larger JSON payload goes by way of a blob
UPLOAD_WAIT_S = 24 * 3600.0  # the server ends an upload that is too slow
BlobSource = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO | Iterable[bytes]


class Upload(NamedTuple):
    """Bytes to send: `open` begins to yield them, once more for every try when `again`."""

    open: Callable[[], Iterator[bytes]]
    size: int | None
    media_type: str
    again: bool


def upload_of(source: object, media_type: str | None) -> Upload:
    """Return what is to be sent. A str or path is the path of a file. Raises InvalidError."""
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(cast("bytes", source))
        return Upload(lambda: _cut(data), len(data), media_type or MEDIA_TYPE, again=True)
    if isinstance(source, str | os.PathLike):
        return _of_path(os.fspath(cast("str | os.PathLike[str]", source)), media_type)
    if hasattr(source, "read"):
        return _of_file(source, media_type or MEDIA_TYPE)
    if isinstance(source, Iterable):
        pieces = cast("Iterable[bytes]", source)
        return Upload(lambda: iter(pieces), None, media_type or MEDIA_TYPE, again=False)
    raise InvalidError(f"a {type(source).__name__} is nothing to upload: give bytes, a path or an open file")


def _of_path(path: str, media_type: str | None) -> Upload:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        raise InvalidError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}") from None
    kind = media_type or mimetypes.guess_type(path)[0] or MEDIA_TYPE
    plain = os.path.isfile(path)
    return Upload(lambda: _of_open(open(path, "rb"), close=True), size if plain else None, kind, again=plain)


def _of_file(file: Any, media_type: str) -> Upload:
    if isinstance(file, io.TextIOBase):
        raise InvalidError("a file opened as text is nothing to upload: open it with mode 'rb'")
    try:
        start: int | None = file.tell() if file.seekable() else None
    except (OSError, AttributeError):
        start = None

    def begin() -> Iterator[bytes]:
        if start is not None:
            file.seek(start)
        return _of_open(file, close=False)

    return Upload(begin, None, media_type, again=start is not None)


def _of_open(file: Any, *, close: bool) -> Iterator[bytes]:
    try:
        while part := file.read(PIECE_B):
            yield part
    finally:
        if close:
            file.close()


def _cut(data: bytes) -> Iterator[bytes]:
    return (data[at : at + PIECE_B] for at in range(0, len(data), PIECE_B))


def put(source: Any, media_type: str | None, terms: Terms) -> Plan[BlobRef]:
    """Store bytes."""
    upload = upload_of(source, media_type)
    headers = [("content-type", upload.media_type)]
    if upload.size is not None:
        headers.append(("content-length", str(upload.size)))
    call = Call(
        "PUT",
        "/v1/blobs",
        headers=tuple(headers),
        source=upload.open,
        repeatable=upload.again,
        wait_s=UPLOAD_WAIT_S,
    )
    view: View = yield from plans.ask(call, terms)
    return BlobRef(str(view["id"]), int(view["size"]), str(view["sha256"]), str(view["media_type"]))


def id_of(blob: Any) -> str:
    """Return the id that a BlobRef, a reference or a text names. Raises InvalidError."""
    blob_id = blob.id if isinstance(blob, BlobRef) else reference_of(blob) or blob
    if not is_id(blob_id):
        raise InvalidError(f'{str(blob)[:60]!r}: a blob is named by its id, a BlobRef, or {{"$blob": id}}')
    return str(blob_id)


def get(blob: Any, sink: Callable[[bytes], object] | None, terms: Terms) -> Plan[bytes]:
    """Return the bytes of a blob; with a `sink` they go there and nothing is returned."""
    answer = yield from plans.send(
        Call("GET", f"/v1/blobs/{id_of(blob)}", sink=sink, repeatable=sink is None, wait_s=UPLOAD_WAIT_S),
        terms,
    )
    return answer.body


def erase_call(blob: Any, *, force: bool) -> Call:
    """Return the call that removes a blob."""
    return Call("DELETE", f"/v1/blobs/{id_of(blob)}", (("force", "1"),) if force else ())


@contextmanager
def sink_of(to: str | os.PathLike[str] | None) -> Generator[Callable[[bytes], object] | None]:
    """Yield what takes bytes for a file, which appears when all went well; None without one."""
    if to is None:
        yield None
        return
    path = os.fspath(to)
    partial = f"{path}.partial"
    try:
        file = open(partial, "wb")  # noqa: SIM115 - closed below, before it gets its name
    except OSError as error:
        raise InvalidError(f"cannot write {partial!r}: {error.strerror}") from None
    try:
        with file:
            yield file.write
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def settled(payload: object, terms: Terms) -> Plan[Raw | dict[str, str]]:
    """Return the payload as it is to be submitted: bytes, paths and open files in it are uploaded, and so is
    a JSON payload above PAYLOAD_INLINE_MAX_B as a whole. Nothing is sent for any other."""
    try:
        text = to_json(payload, "payload")
    except InvalidError:
        found = yield from _without_bytes(payload, terms)
        text = to_json(found, "payload")
    if len(text) <= PAYLOAD_INLINE_MAX_B:
        return Raw(text)
    return (yield from put(text, JSON_TYPE, terms)).reference()


def _without_bytes(value: object, terms: Terms) -> Plan[object]:
    if isinstance(value, bytes | bytearray | memoryview | os.PathLike | io.IOBase):
        return (yield from put(value, None, terms)).reference()
    members = _members(value)
    if members is not None:
        found: dict[object, object] = {}
        for key, inner in members.items():
            found[key] = yield from _without_bytes(inner, terms)
        return found
    if type(value) in {list, tuple}:
        parts: list[object] = []
        for inner in cast("list[object]", value):
            part = yield from _without_bytes(inner, terms)
            parts.append(part)
        return parts
    return value


def _members(value: Any) -> dict[object, object] | None:
    if dataclasses.is_dataclass(value) and not isinstance(value, type | BlobRef):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return cast("dict[object, object]", value) if type(value) is dict else None
