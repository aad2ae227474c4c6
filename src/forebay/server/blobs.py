"""PUT /v1/blobs, GET and DELETE /v1/blobs/{id}: large bytes in and out, a piece at a time."""

import asyncio
import re
from base64 import b64encode

import msgspec

from forebay.blobs.keeper import Keeper
from forebay.core.blobs import MEDIA_TYPE, BlobInfo, is_id, reference_of
from forebay.errors import (
    BlobCorruptError,
    ForebayError,
    MalformedError,
    MediaTypeError,
    NotFoundError,
    RateLimitedError,
    StateConflictError,
    TooLargeError,
)
from forebay.ports.blobs import BlobWriter
from forebay.server.answer import JSON, NO_STORE, Body, Headers, Send, answer, is_gone
from forebay.server.asking import Heads, Scope, query_of
from forebay.server.digests import Digests, wanted_digests
from forebay.server.front import Front
from forebay.server.limits import (
    BODY_TIMEOUT_S,
    PIECE_BYTES,
    UPLOAD_RATE_MIN_B,
    UPLOADS_MAX,
)
from forebay.server.owner import asking_tenant, sees_blob
from forebay.server.problems import BodyTimeoutError, ClientGoneError
from forebay.server.ranges import Part, part_of

_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}(;[\x20-\x7e]{1,100})?", re.ASCII)
REFERENCE = b'{"$blob":'  # how a child writes an output that is a blob as a whole
_NOTHING: frozenset[str] = frozenset()
_FORCE = frozenset({"force"})
# What somebody stored is nobody's page: it is never shown, run or guessed at by a browser.
_INERT: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"content-disposition", b"attachment"),
]
_NONE: Headers = []


class BlobDesk:
    """Blobs over HTTP."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._uploads = 0

    @property
    def _keeper(self) -> Keeper:
        keeper = self._front.blobs
        if keeper is None:
            raise NotFoundError("no such address")
        return keeper

    async def put(self, scope: Scope, heads: Heads, body: Body, send: Send) -> None:
        """Store the body. 201 once it is whole and durable; anything else leaves nothing behind."""
        query_of(scope, _NOTHING)
        kind = _media_type(heads)
        limit = self._front.settings.blob_bytes_max
        if body.length is not None and body.length > limit:
            raise _too_large(limit)
        digests = wanted_digests(heads)
        if self._uploads >= UPLOADS_MAX:
            self._front.meters.bound_reached("uploads")
            raise RateLimitedError(
                f"{UPLOADS_MAX} uploads are on their way, the most there may be", retry_after_s=1.0,
                limit=UPLOADS_MAX,
            )  # fmt: skip
        self._uploads += 1
        try:
            info = await self._receive(kind, body, limit, digests)
        finally:
            self._uploads -= 1
        view = {"id": info.id, "size": info.size, "sha256": info.sha256, "media_type": info.media_type}
        location = (b"location", b"/v1/blobs/" + info.id.encode())
        await answer(send, 201, msgspec.json.encode(view), [JSON, NO_STORE, location, _etag(info)])

    async def _receive(self, kind: str, body: Body, limit: int, digests: Digests) -> BlobInfo:
        keeper = self._keeper
        blob_id, writer = await keeper.begin(asking_tenant(), kind)
        try:
            try:
                await self._copy(body, writer, limit, digests)
                info = await keeper.call(writer.commit)
                digests.check(info.sha256)
            except BaseException:
                # Also when the client hung up: nothing half, and nothing nobody has the name of.
                await asyncio.shield(asyncio.ensure_future(_forget(keeper, blob_id, writer)))
                raise
        finally:
            keeper.release((blob_id,))
        keeper.made += 1
        return info

    async def _copy(self, body: Body, writer: BlobWriter, limit: int, digests: Digests) -> None:
        keeper, clock = self._keeper, self._front.clock
        began = clock.now()
        size, held, parts = 0, 0, list[bytes]()
        async for part in body.chunks():
            size += len(part)
            held += len(part)
            parts.append(part)
            if size > limit:
                raise _too_large(limit)
            if clock.now() - began > BODY_TIMEOUT_S + size / UPLOAD_RATE_MIN_B:
                raise BodyTimeoutError(f"the body comes slower than {UPLOAD_RATE_MIN_B} bytes a second")
            if held >= PIECE_BYTES:
                await keeper.call(_write, writer, parts, digests)
                keeper.bytes_in += held
                held, parts = 0, []
        if parts:
            await keeper.call(_write, writer, parts, digests)
            keeper.bytes_in += held
        if body.length is not None and size != body.length:
            raise MalformedError("the body is not as long as Content-Length says")

    async def get(self, blob_id: str, scope: Scope, heads: Heads, send: Send, *, head_only: bool) -> None:
        """Answer the bytes, or the one range that was asked for."""
        query_of(scope, _NOTHING)
        info = await self._claimed(blob_id)
        try:
            await self.send(info, heads, send, head_only=head_only)
        finally:
            self._keeper.release((info.id,))

    async def send_output(self, output: bytes, heads: Heads, send: Send, *, extra: Headers = _NONE) -> bool:
        """Send the blob that a whole output is; False when it is not one after all.

        Raises BlobCorruptError when it is gone.
        """
        blob_id = reference_of(msgspec.json.decode(output))
        if not is_id(blob_id) or self._front.blobs is None:
            return False
        info = await self._keeper.claim_any(str(blob_id))
        if info is None:
            raise BlobCorruptError("the blob that the result is in was removed")
        try:
            await self.send(info, heads, send, head_only=False, extra=extra)
        finally:
            self._keeper.release((info.id,))
        return True

    async def send(
        self, info: BlobInfo, heads: Heads, send: Send, *, head_only: bool, extra: Headers = _NONE
    ) -> None:
        """Send a claimed blob."""
        etag = _etag(info)
        headers: Headers = [etag, (b"cache-control", b"private, no-cache"), *_INERT, *extra]
        known = heads.get(b"if-none-match")
        if known is not None and (known == b"*" or etag[1] in known):
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        digest = b"sha-256=:" + b64encode(bytes.fromhex(info.sha256)) + b":"
        headers += [
            (b"content-type", info.media_type.encode()),
            (b"accept-ranges", b"bytes"),
            (b"repr-digest", digest),
        ]
        if heads.get(b"if-range", etag[1]) == etag[1]:
            part = part_of(heads.get(b"range"), info.size)
        else:
            part = Part(0, info.size)
        status = 200
        if part != Part(0, info.size):
            status = 206
            headers.append((b"content-range", b"bytes %d-%d/%d" % (part.start, part.end - 1, info.size)))
        headers.append((b"content-length", b"%d" % (part.end - part.start)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if head_only or part.start == part.end:
            await send({"type": "http.response.body", "body": b""})
            return
        await self._stream(info, part, send)

    async def _stream(self, info: BlobInfo, part: Part, send: Send) -> None:
        keeper, at = self._keeper, part.start
        while at < part.end:
            piece = await keeper.call(keeper.store.read, info.id, at, min(PIECE_BYTES, part.end - at))
            if not piece:
                # The length is told already: only a cut connection says that something is wrong.
                raise NotFoundError(f"blob {info.id} ends too early")
            at += len(piece)
            keeper.bytes_out += len(piece)
            if is_gone(send):
                raise ClientGoneError
            await send({"type": "http.response.body", "body": piece, "more_body": at < part.end})

    async def delete(self, blob_id: str, scope: Scope, send: Send) -> None:
        """Erase a blob. 409 while a job names it, unless forced: then the job fails when it reads it."""
        query = query_of(scope, _FORCE)
        front, info = self._front, await self._claimed(blob_id)
        try:
            if query.get("force", "") not in {"1", "true"}:
                (held,) = await front.broker.held((info.id,), now=front.clock.now())
                if held:
                    raise StateConflictError("a job names this blob; erase it all the same with ?force=1")
            await self._keeper.erase(info.id)
        finally:
            self._keeper.release((info.id,))
        self._keeper.removed += 1
        front.log.info("blob_erased", blob=info.id, size=info.size)
        await answer(send, 200, msgspec.json.encode({"id": info.id, "erased": True}), [JSON, NO_STORE])

    async def _claimed(self, blob_id: str) -> BlobInfo:
        keeper = self._keeper
        info = None
        if is_id(blob_id) and sees_blob(blob_id):
            info = await keeper.claim_any(blob_id)
        if info is None:
            raise NotFoundError("no blob has this id")
        return info


def _write(writer: BlobWriter, parts: list[bytes], digests: Digests) -> None:
    data = b"".join(parts)
    writer.write(data)
    digests.update(data)


async def _forget(keeper: Keeper, blob_id: str, writer: BlobWriter) -> None:
    try:
        await keeper.call(writer.abort)
        await keeper.erase(blob_id)
    except ForebayError:
        pass  # what is left is garbage without a name, and the sweep's


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"a blob is at most {limit} bytes (blob_bytes_max)", limit=limit)


def _etag(info: BlobInfo) -> tuple[bytes, bytes]:
    return (b"etag", b'"%b"' % info.sha256.encode())


def _media_type(heads: Heads) -> str:
    if heads.get(b"content-encoding", b"identity").strip().lower() not in {b"identity", b""}:
        raise MediaTypeError("blobs are kept as they come: send it without Content-Encoding")
    kind = heads.get(b"content-type", MEDIA_TYPE.encode()).decode("latin-1").strip().lower()
    if _MEDIA_TYPE.fullmatch(kind) is None:
        raise MediaTypeError("Content-Type must be a media type, like audio/wav")
    return kind
