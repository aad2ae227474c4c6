"""Which jobs of a Ledger name which blobs: in the payload, the output, an edit or the newest checkpoint."""

from forebay.core.blobs import named
from forebay.core.ledger_entry import Entry

Holders = dict[str, set[str]]  # blob -> ids of the jobs that name it


def name(holders: Holders, job_id: str, text: bytes | None) -> None:
    """Remember which blobs a text names."""
    for blob in named(text):
        holders.setdefault(blob, set()).add(job_id)


def unname(holders: Holders, entry: Entry) -> None:
    """Forget which blobs a job names."""
    for blob in {blob for text in _texts(entry) for blob in named(text)}:
        held = holders[blob]
        held.discard(entry.job.id)
        if not held:
            del holders[blob]


def keep_checkpoint(holders: Holders, entry: Entry, text: bytes | None) -> None:
    """Give a job another checkpoint, or none: what only the old one named is named no more."""
    if not named(entry.checkpoint) and not named(text):  # nearly all
        entry.checkpoint = text
        return
    unname(holders, entry)
    entry.checkpoint = text
    for kept in _texts(entry):
        name(holders, entry.job.id, kept)


def _texts(entry: Entry) -> tuple[bytes | None, ...]:
    return entry.job.payload, entry.output, entry.edited, entry.checkpoint
