"""Ids that carry the number of a row and a keyed tag, and what stays of those whose jobs are gone."""

from hashlib import blake2b
from typing import Final, NamedTuple

TAG_BYTES: Final = 6
_HALF: Final = 1 << (8 * TAG_BYTES - 1)
_DIGITS: Final = "0123456789abcdef"


def suffixes_of(secret: bytes, block: int) -> tuple[str, ...]:
    """Return the ends of the ids of 16 neighbours: of the rows from 16 * `block` on."""
    # One hash serves 16 neighbours: ids come, and are read, mostly in order.
    tags = blake2b(block.to_bytes(8, "big"), key=secret, digest_size=64).hexdigest()
    digits = "%09x" % block
    head = f"{digits[:3]}-8{digits[3:6]}-{digits[6:]}"
    return tuple(
        [head + digit + tags[at : at + 8] for digit, at in zip(_DIGITS, range(0, 128, 8), strict=True)]
    )


def number_in(job_id: str) -> int | None:
    """Return the number of the row that an id names, whoever made it; None for a text that is no id."""
    try:
        number = int(job_id[15:18] + job_id[20:23] + job_id[24:28], 16)
    except ValueError:
        return None
    return number if len(job_id) == 36 and number >= 0 else None


def owner_tag(secret: bytes, job_id: str, tenant: str) -> int:
    """Return what is remembered of a removed job's id and tenant: it names neither."""
    digest = blake2b(f"{job_id} {tenant}".encode(), key=secret, digest_size=TAG_BYTES).digest()
    return int.from_bytes(digest, "big") - _HALF


class Former(NamedTuple):
    """A store whose jobs were moved elsewhere: enough to know ids that it gave out."""

    secret: bytes
    upto: int  # rows up to this number that are not there any more were removed

    def removed(self, job_id: str) -> int | None:
        """Return the number of an id of that store whose job, when it is not here, was removed; else None."""
        number = number_in(job_id)
        if number is None or number > self.upto:
            return None
        return number if job_id[15:] == suffixes_of(self.secret, number >> 4)[number & 15] else None

    def stone_of(self, job_id: str, tenant: str) -> str | None:
        """Return what stands for a removed job of a tenant, in the form of an id; None as for `removed`."""
        number = self.removed(job_id)
        return None if number is None else stone(number, owner_tag(self.secret, job_id, tenant))


def stone(number: int, tag: int) -> str:
    """Return a tombstone in the form of an id, which no job has."""
    digits = f"{number:010x}{tag + _HALF:012x}{0:010x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
