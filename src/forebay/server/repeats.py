"""Idempotency keys at the door: where one may stand, and how a repeat is told from the first."""

from forebay.core.job import Receipt, Verdict
from forebay.errors import InvalidError
from forebay.server.answer import Body
from forebay.server.asking import Heads
from forebay.server.wire import Submission

KEY_HEADER = b"idempotency-key"
KEY_FIELD = b'"idempotency_key"'


def may_name_a_key(heads: Heads, body: Body) -> bool:
    """Say whether a submission that would be refused unread may be a repeat of an accepted one, so that its
    body must be read: it is on its way already, or it is known to be a repeat by its head."""
    return KEY_HEADER in heads or not body.expects_continue


def how_known(receipt: Receipt) -> bytes:
    """Return the header that says why the answer is a job that was there already."""
    return b"forebay-joined" if receipt.verdict is Verdict.JOINED else b"idempotency-replayed"


def take_key(submission: Submission, heads: Heads) -> None:
    """Put the key of the head into the submission. Raises InvalidError when that names another one."""
    header = heads.get(KEY_HEADER)
    if header is None:
        return
    key = header.decode("latin-1")
    if submission.idempotency_key not in {None, key}:
        raise InvalidError(
            "idempotency_key: the header says another one",
            errors=(("idempotency_key", "the header says another one"),),
        )
    submission.idempotency_key = key
