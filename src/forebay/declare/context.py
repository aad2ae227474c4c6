"""Context: what a handler may know of the job it works on, to report progress and to save its place."""

import json
import math
from collections.abc import Callable
from typing import Any

MESSAGE_LENGTH_MAX = 500  # characters of a progress message that are kept
CHECKPOINT_BYTES_MAX = 64 * 1024  # of the JSON text of one checkpoint


def _unheard(tag: int, share: float, message: str) -> None:
    """Drop a report: nobody listens outside a worker."""


def _unsaved(tag: int, text: bytes) -> None:
    """Keep a checkpoint in the Context alone: there is no store outside a worker."""


class Context:
    """The optional second parameter of a handler. Outside a worker it works too and reports to nobody.

    In a batched predict annotate `list[Context]` for one per item, in order, or `Context` for one that
    stands for the batch: its progress and the checkpoint it sets are every item's, its deadline the earliest,
    it is cancelled when all of them are, and its job_id, attempt, tenant and earlier checkpoint are the first
    item's.
    """

    __slots__ = (
        "_cancelled", "_checkpoint", "_report", "_save", "_tags", "attempt", "deadline", "job_id", "level",
        "tenant",
    )  # fmt: skip

    def __init__(
        self,
        job_id: str = "",
        attempt: int = 1,
        deadline: float | None = None,
        *,
        tags: tuple[int, ...] = (0,),
        cancelled: set[int] | None = None,
        report: Callable[[int, float, str], None] = _unheard,
        checkpoint: bytes | None = None,
        save: Callable[[int, bytes], None] = _unsaved,
        tenant: str = "",
        level: int = 0,
    ) -> None:
        self.job_id = job_id
        self.attempt = attempt  # 1 is the first
        self.deadline = deadline  # seconds since the epoch, None when there is none
        self.tenant = tenant  # whose job it is, empty without API keys
        self.level = level  # which of the task's variants runs, 0 is the task itself
        self._tags = tags
        self._cancelled: set[int] = set() if cancelled is None else cancelled
        self._report = report
        self._checkpoint = checkpoint
        self._save = save

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to stop this job. A handler that looks here can end early; one that does
        not is killed after the grace."""
        return bool(self._cancelled) and self._cancelled.issuperset(self._tags)

    def progress(self, share: float, message: str = "") -> None:
        """Report how much is done, 0 to 1. Cheap; only the newest report of a short while is sent on.

        Raises ValueError when `share` is not a number from 0 to 1.
        """
        share = float(share)
        if math.isnan(share) or not 0.0 <= share <= 1.0:
            raise ValueError(f"progress: share must be from 0 to 1, not {share}")
        text = str(message)[:MESSAGE_LENGTH_MAX]
        for tag in self._tags:
            self._report(tag, share, text)

    @property
    def checkpoint(self) -> Any:
        """What this or an earlier attempt of the job stored last, None when nothing was.

        Assign JSON to store it: `context.checkpoint = {"page": 6}`. It is stored a moment later, 0.1 s
        when the machine keeps up, and given to the next attempt if this one fails, dies or is handed back.
        It is forgotten when the job ends. What is read is a copy: changing it stores nothing.

        Assigning raises ValueError for what is not JSON and for more than CHECKPOINT_BYTES_MAX bytes of it;
        what was stored before stays.
        """
        return None if self._checkpoint is None else json.loads(self._checkpoint)

    @checkpoint.setter
    def checkpoint(self, value: Any) -> None:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"checkpoint: must be JSON: {error}") from None
        if len(text) > CHECKPOINT_BYTES_MAX:
            raise ValueError(
                f"checkpoint: {len(text):,} bytes of JSON, at most {CHECKPOINT_BYTES_MAX:,} are kept; "
                "store what is larger elsewhere and its place here"
            )
        self._checkpoint = text
        for tag in self._tags:
            self._save(tag, text)
