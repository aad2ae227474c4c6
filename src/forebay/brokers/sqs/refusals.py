"""RefusedError: the service said no; which refusals pass by themselves, and what each means in one line."""

from collections.abc import Mapping
from typing import Any, Final

from forebay.brokers.sqs.account import LINE_MAX
from forebay.errors import DeliveryUnavailableError

SKEW_S: Final = 60.0  # clocks that differ by more are told of when a signature is refused
NO_QUEUE: Final = frozenset({"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"})
DELETED_RECENTLY: Final = frozenset({
    "QueueDeletedRecently", "AWS.SimpleQueueService.QueueDeletedRecently",
})  # fmt: skip
NAME_TAKEN: Final = frozenset({"QueueNameExists", "QueueAlreadyExists"})
EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException"})
_PASSES: Final = frozenset({
    "InternalError", "InternalFailure", "KmsThrottled", "RequestThrottled", "RequestTimeout",
    "ServiceUnavailable", "Throttling", "ThrottlingException", "TooManyRequestsException",
})  # fmt: skip
_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "KmsAccessDenied"})
_UNKNOWN_KEY: Final = frozenset({
    "InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException", "MissingAuthenticationToken",
})  # fmt: skip
_SIGNATURE: Final = frozenset({
    "InvalidSignatureException", "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch",
})  # fmt: skip


class RefusedError(DeliveryUnavailableError):
    """The service refused a call; `reason` is its code."""

    def __init__(self, message: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.reason = reason


def reason_of(answer: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return the code of an error, without the name of its space."""
    named = str(answer.get("__type") or headers.get("X-Amzn-Query-Error", "").partition(";")[0])
    return named.rpartition("#")[2][:100]


def passes(status: int, reason: str) -> bool:
    """Return whether a refusal may pass by itself, so that the call is worth another try."""
    return status >= 500 or status == 429 or reason in _PASSES


def meaning(verb: str, reason: str, told: str, skew_s: float | None) -> str:
    """Return what a refusal means. `skew_s`: how far this machine's clock is ahead of the service's."""
    told = " ".join(told.split())[:LINE_MAX]
    if reason in _DENIED:
        return f"the credentials may not do {verb}: {told}"
    if reason in _UNKNOWN_KEY:
        return f"AWS does not know these credentials ({reason})"
    if reason in EXPIRED:
        return f"the credentials have ended ({reason})"
    if reason in _SIGNATURE:
        if skew_s is not None and abs(skew_s) > SKEW_S:
            side = "ahead of" if skew_s > 0 else "behind"
            return (
                f"this machine's clock is {abs(skew_s):.0f} s {side} the service's; set it right ({reason})"
            )
        return f"the signature is not accepted; is the secret key right? ({reason})"
    if reason == "OverLimit":
        return "as many hints are held as the service allows (OverLimit)"
    return f"{verb} is refused: {reason or 'without a reason'}{': ' if told else ''}{told}"
