"""The shapes of dead letters and of what is done about them."""

from typing import Any

import msgspec

from forebay.server.asks import EditAsk
from forebay.server.timeline import ErrorView
from forebay.server.views import JobView


class DeadLetterRow(JobView):
    """A job that ended dead: what it was asked to do, the worker that ran it last, and the class of its end:
    transient, permanent, resource or poison."""

    payload: Any
    worker: str
    cause: str
    edited: bool  # a redrive takes another payload


class AttemptView(msgspec.Struct):
    """One try that ended badly: who ran it, what went wrong, what was printed, who was in the same call."""

    attempt: int
    started_at: str
    ended_at: str
    outcome: str
    worker: str
    error: ErrorView | None
    log_tail: list[str]
    batch_mates: list[str]


class DeadLetterView(DeadLetterRow):
    """A dead letter with all that is known of its attempts; `log_tail` is of the last that left one,
    `batch_mates` are of all of them."""

    edited_payload: Any
    attempts: list[AttemptView]
    log_tail: list[str]
    batch_mates: list[str]


class DeadLetterList(msgspec.Struct):
    """One page of dead letters, newest first."""

    items: list[DeadLetterRow]
    next_cursor: str | None


class RedriveView(msgspec.Struct, omit_defaults=True):
    """What became of one dead letter."""

    job_id: str
    redriven_as: str | None = None
    replayed: bool | None = None  # it had been redriven before
    code: str | None = None
    detail: str | None = None


class RedriveList(msgspec.Struct):
    """What became of each dead letter, and how many were made anew."""

    items: list[RedriveView]
    redriven: int


ALL = (EditAsk, AttemptView, DeadLetterRow, DeadLetterView, DeadLetterList, RedriveView, RedriveList)
