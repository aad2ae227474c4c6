"""References in payloads: found at the door, checked, and claimed until the job that names them is stored."""

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from forebay.core.blobs import BLOB_SCHEMA_MARK, JSON_TYPE, SIGN, BlobInfo, is_id, named, reference_of
from forebay.core.task import TaskSpec
from forebay.errors import InvalidError, TooLargeError
from forebay.server.asking import shown
from forebay.server.front import Front
from forebay.server.limits import REFERENCES_MAX
from forebay.server.owner import asking_tenant

ESCAPED = b"\\u0024"  # the sign, written so that it is not found
_HINT = b'blob"'  # also the end of the mark written with an escape


class Reference(NamedTuple):
    """One `{"$blob": …}` in a payload."""

    path: str  # "payload.audio"
    value: object


class References:
    """What the way in asks about the payloads it takes."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def found(self, body: bytes, payload: Any) -> tuple[Reference, ...]:
        """Return the references of a payload that came in `body`; nearly always there are none, and that
        costs one look.

        Raises InvalidError for more than REFERENCES_MAX, and for one that is hidden by escapes.
        """
        if SIGN not in body and (b"\\" not in body or ESCAPED not in body):
            return ()
        if _HINT not in body or self._front.blobs is None:
            return ()
        found: list[Reference] = []
        _collect(payload, "payload", found)
        seen = named(body)  # what the store will hold on to
        for one in found:
            if is_id(one.value) and one.value not in seen:
                _refuse(one.path, "must be written without escapes")
        return tuple(found)

    async def claim(self, found: Sequence[Reference], spec: TaskSpec) -> list[BlobInfo]:
        """Return the blobs that were claimed, to be released when the job is stored or refused.

        Raises InvalidError naming the reference that is no blob of the one who asks, TooLargeError for a
        whole payload in a blob that is larger than payloads may be.
        """
        keeper = self._front.blobs
        assert keeper is not None
        claimed: list[BlobInfo] = []
        try:
            for path, value in found:
                info = await keeper.claim(value, asking_tenant())
                if info is None:
                    _refuse(path, f"must name a blob, not {shown(value)}" if not is_id(value) else _UNKNOWN)
                claimed.append(info)
                if path == "payload":
                    self._check_whole(info, spec)
        except BaseException:
            self.release(claimed)
            raise
        return claimed

    def release(self, claimed: Sequence[BlobInfo]) -> None:
        """End the claims."""
        if claimed and self._front.blobs is not None:
            self._front.blobs.release([info.id for info in claimed])

    def _check_whole(self, info: BlobInfo, spec: TaskSpec) -> None:
        limit = self._front.settings.payload_bytes_max
        if info.media_type == JSON_TYPE and not takes_blob(spec.input_schema) and info.size > limit:
            raise TooLargeError(
                f"the payload is {info.size} bytes; as JSON at most {limit} are taken (payload_bytes_max)",
                limit=limit,
            )


_UNKNOWN = "names no blob: it was never stored, or has been removed since"


def digests(claimed: Sequence[BlobInfo]) -> list[tuple[bytes, bytes]]:
    """Return the id of each blob and the digest that stands for it in hashes: bytes that were uploaded again
    are the same."""
    return [(info.id.encode(), info.sha256.encode()) for info in claimed]


def takes_blob(schema: Any) -> bool:
    """Say whether a task takes its whole payload as a Blob."""
    return isinstance(schema, dict) and BLOB_SCHEMA_MARK in schema  # pyright: ignore[reportUnknownMemberType]


def is_whole(found: Sequence[Reference]) -> bool:
    """Say whether the payload as a whole is in a blob: then its content is for the child to check."""
    return len(found) == 1 and found[0].path == "payload"


def _collect(value: Any, path: str, found: list[Reference]) -> None:
    """Note every reference inside decoded JSON. The door has bounded how deep it is."""
    if isinstance(value, dict):
        named_here = reference_of(value)  # pyright: ignore[reportUnknownArgumentType]
        if named_here is not None:
            if len(found) >= REFERENCES_MAX:
                _refuse(path, f"is one blob too many: a payload names at most {REFERENCES_MAX}")
            found.append(Reference(path, named_here))
            return
        for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
            if isinstance(inner, dict | list):
                _collect(inner, f"{path}.{key}", found)
    elif isinstance(value, list):
        for index, inner in enumerate(value):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            if isinstance(inner, dict | list):
                _collect(inner, f"{path}.{index}", found)


def _refuse(path: str, rule: str) -> NoReturn:
    raise InvalidError(f"{path} {rule}", errors=((path, rule),))
