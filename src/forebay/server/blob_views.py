"""The shapes of answers on blobs."""

import msgspec


class BlobView(msgspec.Struct):
    """A blob that was stored. A payload names it as `{"$blob": id}`."""

    id: str
    size: int
    sha256: str
    media_type: str


class ErasedView(msgspec.Struct):
    """A blob that is gone."""

    id: str
    erased: bool
