"""Checks of what a caller passes to a verb: one sentence that names the argument."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

from forebay.client.encode import Options, submission, to_json
from forebay.client.policy import BACKOFFS, Backoff
from forebay.client.wire import JSON, Call, View, dead_letter_call, job_path
from forebay.core.budget import FIELD, read_budget
from forebay.core.units import duration_s, rate_per_s
from forebay.errors import InvalidError

RETRY_BUDGET = "10/s"  # sent whatever the server does; `core.retry_budget` and `core.accept_ratio` count
RESULT_TIMEOUT = "5m"  # how long `result` waits when not told
LIST_MAX = 100  # rows of a list when not told
KEY_MAX = 255  # characters of an idempotency key


class SubmitOptions(TypedDict, total=False):
    """What a submission may say beside its task and payload."""

    priority: str | int | None
    ttl: str | float | None
    deadline: Any  # a duration from now, or an instant: RFC 3339 text or a datetime with a zone
    run_at: Any  # RFC 3339 text or a datetime with a zone
    metadata: Mapping[str, Any] | None
    attempts_max: int | None
    callback_url: str | None  # told of the end, see the page on webhooks
    ordering_key: str | None  # jobs of one task with the same one run one at a time, in order


def server(url: str | None, api_key: str | None) -> tuple[str, str | None]:
    """Return where the server is and the key for it: what was given, else the settings `url` and `api_key`
    (FOREBAY_URL, FOREBAY_API_KEY, forebay.toml). The key of the settings goes to the server of the settings
    alone. Raises ConfigError."""
    if url is not None:
        return url, api_key
    from forebay.config import load_settings

    told = load_settings()
    kept = None if told.api_key is None else told.api_key.reveal()
    return told.url, kept if api_key is None else api_key


def options(**given: Unpack[SubmitOptions]) -> Options:
    """Return the options of a submission; datetimes become RFC 3339. Raises TypeError as a call would."""
    unknown = set(given) - set(Options._fields)
    if unknown:
        raise TypeError(f"unknown option {min(unknown)!r}; there are {', '.join(Options._fields)}")
    chosen = Options(**given)
    return chosen._replace(deadline=_instant(chosen.deadline), run_at=_instant(chosen.run_at))


def filters(
    status: str | None, task: str | None, metadata: Mapping[str, str] | None
) -> dict[str, str | None]:
    """Return the query of a listing."""
    found: dict[str, str | None] = {"status": status, "task": task}
    found.update((f"metadata.{name}", value) for name, value in (metadata or {}).items())
    return found


def one(task: str, payload: object, chosen: Options, key: str | None) -> tuple[bytes, str]:
    """Return the body and the idempotency key of one submission; a key is drawn when none is given."""
    if key is not None and not (
        1 <= len(key) <= KEY_MAX and key.isascii() and key.isprintable() and " " not in key
    ):
        raise InvalidError(
            f"idempotency_key: must be 1 to {KEY_MAX} printable ASCII characters without spaces"
        )
    return submission(task, payload, chosen), key or str(uuid.uuid4())


def amendment(job_id: str, priority: str | int | None, task: str | None) -> Call:
    """Return the call that gives a waiting job another priority or task. Raises InvalidError for neither."""
    given = {"priority": priority, "task": task}
    asked = [
        to_json(name, name) + b":" + to_json(value, name)
        for name, value in given.items()
        if value is not None
    ]
    if not asked:
        raise InvalidError("say what to change: priority or task")
    return Call("PATCH", job_path(job_id), headers=(JSON,), body=b"{" + b",".join(asked) + b"}")


def edit(job_id: str, payload: object) -> Call:
    """Return the call that gives a dead letter another payload. Raises InvalidError for what is no JSON."""
    body = b'{"payload":' + to_json(payload, "payload") + b"}"
    return dead_letter_call("PATCH", job_id)._replace(headers=(JSON,), body=body)


def seconds(name: str, value: object) -> float:
    """Return seconds. Raises InvalidError that names the argument."""
    try:
        return duration_s(value)
    except ValueError as error:
        raise InvalidError(f"{name}: {error}") from None


def backoff(name: str) -> Backoff:
    """Return how a class of producers waits. Raises InvalidError that names the classes."""
    found = BACKOFFS.get(name)
    if found is None:
        raise InvalidError(f"backoff: {name!r} is not one of {', '.join(BACKOFFS)}")
    return found


def budget(text: str | None) -> dict[str, str]:
    """Return the header that names a budget like "ci" or "ci=300/s". Raises InvalidError."""
    if text is None:
        return {}
    try:
        read_budget(text)
    except ValueError as error:
        raise InvalidError(f"budget: {error}") from None
    return {FIELD.lower(): text.strip()}


def rate(value: str | float | None) -> float | None:
    """Return items per second, None for as fast as the server takes them."""
    try:
        return None if value is None else rate_per_s(value)
    except ValueError as error:
        raise InvalidError(f"rate: {error}") from None


def retry_budget(value: str | float) -> float:
    """Return retries per second. Raises InvalidError."""
    try:
        return rate_per_s(value)
    except ValueError as error:
        raise InvalidError(f"retry_budget: {error}") from None


def _instant(value: Any) -> Any:
    if not hasattr(value, "isoformat"):
        return value
    if getattr(value, "tzinfo", None) is None:
        raise InvalidError(f"{value!r}: a time without a zone; use one with tzinfo=UTC")
    return value.isoformat()


def cancelling(
    ids: Iterable[str] | None,
    *,
    status: str | None = None,
    task: str | None = None,
    metadata: Mapping[str, str] | None = None,
    everything: bool = False,
) -> View:
    """Return the body that says which jobs to cancel."""
    if ids is not None:
        return {"ids": list(ids)}
    asked: View = {"status": status, "task": task, "metadata": dict(metadata or {}) or None}
    asked = {name: value for name, value in asked.items() if value is not None}
    return {**asked, "all": True} if everything else asked
