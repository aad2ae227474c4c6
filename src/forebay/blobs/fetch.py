"""Fetch what a payload points to outside: https:// and object stores, from allowed places, up to a bound.

A host is connected to by an address that was looked at: never a private one, unless the host itself is
listed in `blob_sources`. Redirects are not followed.
"""

import http.client
import socket
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from forebay.core.callback import CallbackRules, address_problem
from forebay.errors import BlobRefusedError, ForebayError, StoreUnavailableError

CONNECT_S: Final = 10.0
IDLE_S: Final = 30.0  # without a byte
PART_B: Final = 1024 * 1024
_PORTS: Final = {"https": 443, "http": 80}
PUBLIC_ONLY: Final = CallbackRules()  # one rule for everything that is fetched or told on behalf of others


def check_source(url: str, sources: tuple[str, ...]) -> bool:
    """Return whether the place is listed by its name, and may so be private.

    Raises BlobRefusedError for a URL that is not well formed or not allowed by `blob_sources`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BlobRefusedError("the reference is not a URL") from None
    if not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
        raise BlobRefusedError("the reference is not a URL")
    if parts.username is not None or parts.password is not None:
        raise BlobRefusedError("a reference holds no user or password")
    if port == 0:
        raise BlobRefusedError("a reference has no port 0")
    place = f"{parts.scheme}://{parts.netloc.lower()}/"
    if place in {f"{one.rstrip('/')}/" for one in sources if not one.endswith("://")}:
        return True
    if parts.scheme == "https" and "https://" in sources:
        return False
    raise BlobRefusedError(f"{place} is not among the places that may be fetched from (blob_sources)")


def fetch(url: str, *, sources: tuple[str, ...], bytes_max: int) -> tuple[str, Iterator[bytes]]:
    """Return the media type and the bytes, a piece at a time.

    Raises BlobRefusedError for good, StoreUnavailableError for what may work another time; so does the
    iterator.
    """
    listed = check_source(url, sources)
    parts = urlsplit(url)
    if parts.scheme in _PORTS:
        return _over_http(parts, listed, bytes_max)
    return _from_object_store(parts, bytes_max)


def _addresses(host: str, port: int, *, listed: bool) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise StoreUnavailableError(f"{host} cannot be resolved") from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    if not listed and any(address_problem(ip_address(one), PUBLIC_ONLY) for one in addresses):
        raise BlobRefusedError(f"{host} has a private address: list it in blob_sources if it is meant")
    return addresses


def _over_http(parts: SplitResult, listed: bool, bytes_max: int) -> tuple[str, Iterator[bytes]]:
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    connection = _connect(parts, host, port, _addresses(host, port, listed=listed))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("GET", target, headers={"accept-encoding": "identity", "user-agent": "forebay"})
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise StoreUnavailableError(f"{host}: {_line(error)}") from None
    try:
        _check_answer(host, answer, bytes_max)
    except ForebayError:
        connection.close()
        raise
    kind = (answer.getheader("content-type") or "application/octet-stream").strip().lower()[:200]
    return kind, _pieces(connection, answer, host, bytes_max)


def _connect(parts: SplitResult, host: str, port: int, addresses: list[str]) -> http.client.HTTPConnection:
    last: Exception | None = None
    for address in addresses:
        try:
            raw = socket.create_connection((address, port), timeout=CONNECT_S)
        except OSError as error:
            last = error
            continue
        connection = http.client.HTTPConnection(host, port, timeout=IDLE_S)
        try:
            if parts.scheme == "https":
                raw = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
        except OSError as error:  # a bad certificate is one too
            raw.close()
            last = error
            continue
        raw.settimeout(IDLE_S)
        connection.sock = raw  # the address that was looked at, and no other
        return connection
    raise StoreUnavailableError(f"{host}: {_line(last)}")


def _check_answer(host: str, answer: http.client.HTTPResponse, bytes_max: int) -> None:
    status = answer.status
    if status in {408, 425, 429} or status >= 500:
        raise StoreUnavailableError(f"{host} answered {status}")
    if status != 200:
        raise BlobRefusedError(f"{host} answered {status}; redirects are not followed")
    if (answer.getheader("content-encoding") or "identity").lower() != "identity":
        raise BlobRefusedError(f"{host} answered compressed bytes, which was not asked for")
    if answer.length is not None and answer.length > bytes_max:
        raise BlobRefusedError(f"{host}: {answer.length} bytes, at most {bytes_max} are fetched")


def _pieces(
    connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, host: str, bytes_max: int
) -> Iterator[bytes]:
    size, expected = 0, answer.length
    try:
        while part := answer.read1(PART_B):
            size += len(part)
            if size > bytes_max:
                raise BlobRefusedError(f"{host}: more than {bytes_max} bytes")
            yield part
    except (OSError, http.client.HTTPException) as error:
        raise StoreUnavailableError(f"{host}: {_line(error)}") from None
    finally:
        connection.close()
    if expected is not None and size != expected:
        raise StoreUnavailableError(f"{host}: the answer ended too early")


def _from_object_store(parts: SplitResult, bytes_max: int) -> tuple[str, Iterator[bytes]]:
    from forebay.blobs.object_store import obstore_for

    obstore = obstore_for(parts.scheme)
    from obstore.store import from_url

    key = parts.path.lstrip("/")
    place = f"{parts.scheme}://{parts.netloc}/{key}"
    try:
        found: Any = obstore.get(from_url(f"{parts.scheme}://{parts.netloc}"), key)
    except FileNotFoundError:
        raise BlobRefusedError(f"{place} is not there") from None
    except Exception as error:
        raise StoreUnavailableError(f"{place}: {_line(error)}") from None
    size = int(found.meta["size"])
    if size > bytes_max:
        raise BlobRefusedError(f"{place}: {size} bytes, at most {bytes_max} are fetched")
    kind = str(dict(found.attributes).get("Content-Type", "application/octet-stream"))
    return kind, (bytes(part) for part in found.stream(min_chunk_size=PART_B))


def _line(error: Exception | None) -> str:
    line = " ".join(str(error).split())
    return line if len(line) <= 200 else line[:199] + "…"
