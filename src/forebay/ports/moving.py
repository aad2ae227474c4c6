"""What a store that is moved to another engine hands over, beside what its verbs tell of it."""

from collections.abc import Sequence
from typing import NamedTuple

from forebay.core.crons import CronMark
from forebay.core.job import JobRecord
from forebay.core.outbox import Delivery
from forebay.core.quarantine import DeadlyInput


class KeyOf(NamedTuple):
    """An idempotency key and the job that it means."""

    tenant: str
    key: str
    job_id: str
    body_hash: bytes


class Tap(NamedTuple):
    """A task that is paused or drains."""

    task: str
    paused: bool
    draining: bool


class Load(NamedTuple):
    """Some jobs, with what belongs to each of them."""

    records: Sequence[JobRecord]
    deliveries: Sequence[Delivery]
    keys: Sequence[KeyOf]


class Rest(NamedTuple):
    """What belongs to no job."""

    marks: Sequence[CronMark]
    deadly: Sequence[DeadlyInput]
    taps: Sequence[Tap]
