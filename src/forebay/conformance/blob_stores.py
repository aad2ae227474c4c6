"""The contract of a BlobStore as checks that run: BLOB_CHECKS; each gets an empty store, or raises."""

import hashlib
from collections.abc import Callable

from forebay.conformance.fixtures import T0, equal
from forebay.core.blobs import BlobInfo, new_id
from forebay.errors import NotFoundError
from forebay.ports.blobs import BlobStore

BlobCheck = Callable[[BlobStore], None]
BLOB_CHECKS: list[BlobCheck] = []
LARGE_B = 9 * 1024 * 1024 + 1  # more than one part of any store
FOREIGN = (
    *(
        "",
        ".",
        "..",
        "../x",
        "/etc/passwd",
        "..%2f..%2fx",
        "a/b",
        "C:\\x",
        "\0",
        "x" * 56,
        "A" * 56,
        "0" * 57,
    ),
    *("unfinished", "\uff10" * 56, "🦀" * 14, "0" * 55 + "\n", "x" * 5_000, "-" * 56, "." * 56, "/" * 56),
)


def an_id(number: int = 0, tenant: str = "") -> str:
    """Return an id for tests."""
    return new_id(tenant, now=T0, chance=number.to_bytes(16, "big"))


def stored(store: BlobStore, data: bytes, number: int = 0, *, media_type: str = "text/plain") -> BlobInfo:
    """Store bytes and return what the store says of them."""
    writer = store.begin(an_id(number), media_type)
    for at in range(0, len(data), 1024 * 1024):
        writer.write(data[at : at + 1024 * 1024])
    return writer.commit()


def _check(run: BlobCheck) -> BlobCheck:
    BLOB_CHECKS.append(run)
    return run


def _refused(store: BlobStore, blob_id: str) -> None:
    try:
        store.read(blob_id, 0, 1)
    except NotFoundError:
        return
    raise AssertionError(f"read of {blob_id[:60]!r} was not refused")


@_check
def what_was_written_is_read(store: BlobStore) -> None:
    for number, data in enumerate((b"", b"x", b"hello" * 1000, bytes(range(256)) * (LARGE_B // 256) + b"!")):
        info = stored(store, data, number)
        digest = hashlib.sha256(data).hexdigest()
        equal(info, BlobInfo(an_id(number), len(data), digest, "text/plain"), "what commit says")
        equal(store.head(info.id), info, "head")
        parts = [store.read(info.id, at, 5_000_000) for at in range(0, len(data), 5_000_000)]
        equal(hashlib.sha256(b"".join(parts)).hexdigest(), digest, "what is read")


@_check
def ranges_are_cut_at_the_end(store: BlobStore) -> None:
    info = stored(store, b"0123456789")
    for start, size, data in ((0, 1, b"0"), (3, 4, b"3456"), (8, 100, b"89"), (10, 5, b""), (50, 5, b"")):
        equal(store.read(info.id, start, size), data, f"{size} bytes from {start}")


@_check
def nothing_is_there_before_the_commit_or_after_an_abort(store: BlobStore) -> None:
    for data in (b"small", b"x" * LARGE_B):
        writer = store.begin(an_id(), "text/plain")
        writer.write(data)
        equal(store.head(an_id()), None, "head before the commit")
        writer.abort()
        writer.abort()
        equal(store.head(an_id()), None, "head after an abort")
        _refused(store, an_id())
        equal(list(store.ids()), [], "ids after an abort")


@_check
def an_abort_after_the_commit_does_nothing(store: BlobStore) -> None:
    writer = store.begin(an_id(), "text/plain")
    writer.write(b"x")
    info = writer.commit()
    writer.abort()
    equal(store.head(an_id()), info, "head")


@_check
def two_writers_do_not_meet(store: BlobStore) -> None:
    one, other = store.begin(an_id(1), "text/plain"), store.begin(an_id(2), "text/plain")
    for _ in range(3):
        one.write(b"1")
        other.write(b"2")
    other.commit()
    equal(store.head(an_id(1)), None, "head of the one that goes on")
    one.commit()
    equal((store.read(an_id(1), 0, 9), store.read(an_id(2), 0, 9)), (b"111", b"222"), "bytes")


@_check
def what_was_deleted_is_gone(store: BlobStore) -> None:
    stored(store, b"x", 1)
    kept = stored(store, b"y", 2)
    equal((store.delete(an_id(1)), store.delete(an_id(1))), (True, False), "deleted")
    equal(store.head(an_id(1)), None, "head")
    equal(store.path(an_id(1)), None, "path")
    _refused(store, an_id(1))
    equal(list(store.ids()), [kept.id], "ids")


@_check
def every_id_is_listed_once(store: BlobStore) -> None:
    ids = [stored(store, b"x", number).id for number in range(20)]
    other = store.begin(an_id(99, "acme"), "text/plain")
    ids.append(other.commit().id)
    equal(sorted(store.ids()), sorted(ids), "ids")


@_check
def what_is_no_id_reaches_nothing(store: BlobStore) -> None:
    stored(store, b"secret")
    for text in FOREIGN:
        equal(store.head(text), None, f"head of {text[:60]!r}")
        equal(store.path(text), None, f"path of {text[:60]!r}")
        equal(store.delete(text), False, f"delete of {text[:60]!r}")
        _refused(store, text)
    equal(store.read(an_id(), 0, 9), b"secret", "the one that is there")


@_check
def a_path_is_of_a_file_with_exactly_the_bytes(store: BlobStore) -> None:
    info = stored(store, b"hello")
    path = store.path(info.id)
    if path is not None:
        with open(path, "rb") as file:
            equal(file.read(), b"hello", "the file")
