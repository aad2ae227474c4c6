"""What a redrive of a dead letter takes in place of its payload."""

from forebay.core.ledger_entry import Entry
from forebay.core.ledger_shelf import Shelf
from forebay.core.lifecycle import State


def edit(shelf: Shelf, entry: Entry, payload: bytes) -> bool:
    """Keep a payload for the redrive of a dead job; False for any other."""
    if entry.state is not State.DEAD:
        return False
    shelf.unname_blobs(entry)
    entry.edited = payload
    for text in (entry.job.payload, entry.output, payload):
        shelf.name_blobs(entry.job.id, text)
    return True
