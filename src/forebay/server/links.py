"""Links: addresses that open one result or one blob for a time, without a key; signed."""

import hashlib
import hmac
import math
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

from forebay.config import Settings, data_directory
from forebay.core.signing_keys import read_keys
from forebay.core.tenant import Scope as KeyScope
from forebay.errors import LinkError
from forebay.secret import own_secret
from forebay.server.asking import Scope, query_of
from forebay.server.caller import Caller

KEY_FILE: Final = "link_secret"
TTL_MAX_S: Final = 7 * 86_400.0
_MARK: Final = b"sig="
_NAMES: Final = frozenset({"expires", "sig"})
_LINKED: Final = re.compile(r"/v1/(jobs/[^/]+/result|blobs/[^/]+)")
_EXPIRES: Final = re.compile(r"[0-9]{1,11}", re.ASCII)
# Whoever shows a link may read what stands behind that one address, whosever it is.
BEARER: Final = Caller("", None, frozenset({KeyScope.READ}))


def is_link(asked: Scope) -> bool:
    """Say whether a request wants to read a result or a blob by its link. Costs next to nothing."""
    query: bytes = asked["query_string"]
    if _MARK not in query or asked["method"] not in {"GET", "HEAD"}:
        return False
    return _LINKED.fullmatch(asked["path"]) is not None


class Links:
    """Makes links with the first of its keys, and takes those of all: keys are rotated so."""

    def __init__(self, keys: Sequence[bytes], *, job_ttl_s: float | None = None) -> None:
        self._keys = tuple(keys)
        self.job_ttl_s = job_ttl_s  # of the link in a finished job; None: there is none

    def made(self, path: str, *, expires_at: float) -> str:
        """Return the address that opens `path` until `expires_at`, rounded up to whole seconds."""
        expires = str(math.ceil(expires_at))
        return f"{path}?expires={expires}&sig={_signature(self._keys[0], path, expires)}"

    def of_result(self, job_id: str, *, now: float) -> str | None:
        """Return the link to a result that goes with a finished job, None where none is wanted."""
        if self.job_ttl_s is None:
            return None
        return self.made(f"/v1/jobs/{job_id}/result", expires_at=now + self.job_ttl_s)

    def opened(self, asked: Scope, *, now: float) -> Scope:
        """Return a request by link as one without, once its signature and its time were found good.

        Raises LinkError, the same for whatever is wrong but the time; whether there is such a thing is asked
        later.
        """
        path: str = asked["path"]
        query = query_of(asked, _NAMES)
        expires, told = query.get("expires", ""), query.get("sig", "")
        good = False
        for key in self._keys:  # all of them: how long it takes says nothing
            good |= hmac.compare_digest(_signature(key, path, expires).encode(), told.encode())
        if not good or _EXPIRES.fullmatch(expires) is None:
            raise LinkError("the link is not valid: it must be used as it was given out")
        if int(expires) <= now:
            raise LinkError("the link has expired: ask for a new one")
        return {**asked, "query_string": b""}


def open_links(settings: Settings) -> Links:
    """Return the links of a server, by the secret of the settings or the store's own. Raises ConfigError."""
    if settings.link_secret is not None:
        keys = read_keys(settings.link_secret.reveal())
    else:
        keys, _, _ = own_secret(data_directory(settings), KEY_FILE)
    return Links(keys, job_ttl_s=settings.link_ttl)


def _signature(key: bytes, path: str, expires: str) -> str:
    content = f"forebay link v1\n{path}\n{expires}".encode()
    return urlsafe_b64encode(hmac.digest(key, content, hashlib.sha256)).decode().rstrip("=")
