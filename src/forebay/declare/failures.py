"""Failed, Retry, Permanent: how a handler says that an item failed, returned or raised."""

from forebay.core.units import duration_s
from forebay.errors import AppError


class Failed(Exception):
    """This item failed. Return it in place of an output, or raise it.

    `permanent` ends the job without another try; `after` (seconds or "5s") is the least wait before the
    next one. Raised from a batched predict it counts like any exception: the batch is split to find whom
    it belongs to.
    """

    def __init__(
        self, message: str = "", *, permanent: bool = False, after: float | str | None = None
    ) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.after_s = None if after is None else _seconds(after)


class Retry(Failed):
    """Try again, not before `after`. Raised from a batched predict it is the answer for every item."""

    def __init__(self, message: str = "asked to be tried again", *, after: float | str | None = None) -> None:
        super().__init__(message, after=after)


class Permanent(Failed):
    """This item can never succeed: no further try."""

    def __init__(self, message: str = "failed for good") -> None:
        super().__init__(message, permanent=True)


def _seconds(after: float | str) -> float:
    try:
        return duration_s(after)
    except ValueError as error:
        raise AppError(f"after: {error}") from None
