"""Whose request this is: the one place that says so for blobs."""

from forebay.core.blobs import belongs
from forebay.server.caller import caller


def asking_tenant() -> str:
    """Return the tenant that what this request makes belongs to."""
    return caller().tenant


def sees_blob(blob_id: str) -> bool:
    """Say whether a blob exists for whoever asks: those of other tenants do not."""
    own = caller().own
    return own is None or belongs(blob_id, own)
