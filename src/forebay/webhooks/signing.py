"""Signatures of Standard Webhooks: made with one secret, or with several while they are rotated."""

import base64
import hashlib
import hmac
from collections.abc import Sequence


def signed(
    keys: Sequence[bytes], *, message_id: str, timestamp: int, body: bytes
) -> list[tuple[bytes, bytes]]:
    """Return the three headers of one try: one signature for each key, so that a receiver may hold any."""
    content = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    signatures = (base64.b64encode(hmac.digest(key, content, hashlib.sha256)) for key in keys)
    return [
        (b"webhook-id", message_id.encode()),
        (b"webhook-timestamp", str(timestamp).encode()),
        (b"webhook-signature", b" ".join(b"v1," + each for each in signatures)),
    ]
