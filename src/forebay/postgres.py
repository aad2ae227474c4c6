"""submit, submit_async: a job in a transaction of yours on PostgreSQL: stored with your rows, or not at all.

    with psycopg.connect(...) as connection:
        connection.execute("INSERT INTO invoices ...")
        forebay.postgres.submit(connection, "read_invoice", {"id": 17})

No server is asked, so nothing of what a server knows is applied: whether there is such a task, its schema and
defaults, whether its queue has room, quotas, quarantine. Not for a store with `payload_keys`.
"""

from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from forebay.brokers.postgres.address import SCHEMA, psycopg_module
from forebay.brokers.postgres.inside import Plain, enqueue_inside
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.task import TaskSpec
from forebay.errors import ConfigError, IdempotencyConflictError, InvalidError
from forebay.server.wire import body_hash, decode, job_from

T = TypeVar("T")


class Submitted(NamedTuple):
    """The job that a submission means. It is there when the transaction is committed."""

    job_id: str
    new: bool  # False: its idempotency key had this job already


def submit(
    connection: Any,
    task: str,
    payload: Any = None,
    *,
    schema: str = SCHEMA,
    tenant: str = "",
    version: str = "1",
    **fields: Any,
) -> Submitted:
    """Store a job in the transaction of a `psycopg.Connection`; commit or roll back as you like.

    `fields` are those of `POST /v1/jobs`: `priority`, `ttl`, `deadline`, `run_at`, `metadata`,
    `attempts_max`, `idempotency_key`, `callback_url`, `ordering_key`; `version` is the task's. Nodes hear of
    the job at the commit. Commits that ring wait for each other a little in the database: for many jobs a
    second ask a server.

    Raises InvalidError for a field, IdempotencyConflictError for a key that was used with another body,
    ConfigError and StoreVersionError for a schema that is not ours, and what the driver raises. After an
    error of ours the transaction is as it was before.
    """
    _check(connection, kind="Connection")
    make = _maker(task, payload, fields, tenant=tenant, version=version)
    rows: Any = psycopg_module().rows.tuple_row
    with connection.cursor(binary=True, row_factory=rows) as cursor:
        return _told(_driven(enqueue_inside(Plain(cursor), schema, make)))


async def submit_async(
    connection: Any,
    task: str,
    payload: Any = None,
    *,
    schema: str = SCHEMA,
    tenant: str = "",
    version: str = "1",
    **fields: Any,
) -> Submitted:
    """As `submit`, in the transaction of a `psycopg.AsyncConnection`."""
    _check(connection, kind="AsyncConnection")
    make = _maker(task, payload, fields, tenant=tenant, version=version)
    rows: Any = psycopg_module().rows.tuple_row
    async with connection.cursor(binary=True, row_factory=rows) as cursor:
        return _told(await enqueue_inside(cursor, schema, make))


def _check(connection: Any, *, kind: str) -> None:
    psycopg = psycopg_module()
    if not isinstance(connection, getattr(psycopg, kind)):
        raise ConfigError(f"connection: must be a psycopg.{kind}, not {type(connection).__name__}")
    idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if idle and connection.autocommit:
        raise ConfigError("connection: is in autocommit and in no transaction: open one around the submit")


def _maker(task: str, payload: Any, fields: Mapping[str, Any], *, tenant: str, version: str) -> Any:
    """Return what makes the job of an id and a time. Raises InvalidError."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        body = msgspec.json.encode({"task": task, "payload": payload, **given})
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidError(f"not JSON: {error}") from None
    submission, read = decode(body)
    hashed = b"" if submission.idempotency_key is None else body_hash(submission, read)
    spec = TaskSpec(name=submission.task, version=version)

    def make(job_id: str, now: float) -> Job:
        return job_from(submission, spec, job_id=job_id, now=now, body_hash=hashed, tenant=tenant)

    return make


def _told(receipt: Receipt) -> Submitted:
    if receipt.verdict is Verdict.CONFLICT:
        raise IdempotencyConflictError
    return Submitted(receipt.job_id, receipt.verdict is Verdict.STORED)


def _driven(work: Coroutine[Any, Any, T]) -> T:
    """Run to its end what waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    work.close()
    raise AssertionError("a statement of a blocking connection was waited for")
