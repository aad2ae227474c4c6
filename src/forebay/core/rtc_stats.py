"""WebRTC statistics: what a browser's `getStats()` counts, and where on its way a frame was lost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from forebay.errors import InvalidError

ENTRIES_MAX: Final = 10_000  # of one report
_COUNTED: Final = {  # kind of entry: {its word: ours}
    "media-source": {"frames": "captured"},
    "outbound-rtp": {"framesEncoded": "encoded", "framesSent": "sent"},
    "inbound-rtp": {
        "framesReceived": "received",
        "framesDropped": "decoder_dropped",
        "framesDecoded": "decoded",
        "freezeCount": "freezes",
    },
}


@dataclass(frozen=True, slots=True)
class RtcCounts:
    """The counts of the video in one report, added up; what nobody counted is not in `counts`."""

    counts: dict[str, int]
    limited_by: dict[str, float] = field(
        default_factory=dict[str, float]
    )  # seconds by reason: cpu, bandwidth

    def since(self, before: "RtcCounts") -> "RtcCounts":
        """Return what came after an earlier report of the same connection.

        A count that fell began anew, so all of it is new.
        """
        counts = {name: _grown(before.counts.get(name, 0), now) for name, now in self.counts.items()}
        limited = {why: now - before.limited_by.get(why, 0.0) for why, now in self.limited_by.items()}
        return RtcCounts(counts, {why: max(0.0, seconds) for why, seconds in limited.items()})


class Step(NamedTuple):
    """One part of the way: of `came` frames, `lost` were lost, for reasons that are counted or inferred."""

    name: str
    came: int
    lost: int
    reasons: dict[str, int]

    @property
    def share(self) -> float:
        """Lost of those that came, 0 to 1."""
        return self.lost / self.came if self.came else 0.0


class Journey(NamedTuple):
    """The way of the frames from the camera to the model's answer."""

    steps: tuple[Step, ...]
    limited_by: dict[str, float]

    @property
    def lost(self) -> int:
        """Frames that were lost on the whole way."""
        return sum(step.lost for step in self.steps)

    @property
    def worst(self) -> Step | None:
        """Where most were lost; None when none was."""
        lossy = [step for step in self.steps if step.lost]
        return max(lossy, key=lambda step: step.lost) if lossy else None

    def __str__(self) -> str:
        worst = self.worst
        if worst is None:
            return "no frame was lost on the way"
        why = max(worst.reasons, key=worst.reasons.__getitem__)
        return f"most were lost in {worst.name}: {worst.lost} of {worst.came} ({worst.share:.1%}), {why}"


def read_stats(report: object) -> RtcCounts:
    """Return the counts of a `getStats()` report as JSON: a list of entries, or an object of them by id.

    Of simulcast layers, which all carry the same frames, the largest counts. Raises InvalidError for what is
    no report, or has no video.
    """
    entries = _entries(report)
    sums: dict[str, int] = {}
    limited: dict[str, float] = {}
    for entry in entries:
        words = _COUNTED.get(str(entry.get("type")), {})
        if not words or entry.get("kind", entry.get("mediaType", "video")) != "video":
            continue
        is_layer = entry.get("type") == "outbound-rtp" and entry.get("rid") is not None
        for word, ours in words.items():
            count = _count(entry, word)
            if count is not None:
                sums[ours] = max(sums.get(ours, 0), count) if is_layer else sums.get(ours, 0) + count
        durations: Any = entry.get("qualityLimitationDurations")
        if durations.__class__ is dict:
            for why in list(durations):
                seconds: Any = durations[why]
                if why != "none" and type(seconds) in (int, float) and 0 <= seconds < 1e12:
                    limited[str(why)] = max(limited.get(str(why), 0.0), float(seconds))
    if not sums:
        raise InvalidError("the report has no video: no media-source, outbound-rtp or inbound-rtp of it")
    return RtcCounts(sums, limited)


def join(
    sender: RtcCounts | None,
    receiver: RtcCounts | None,
    *,
    offered: int,
    served: int,
    dropped: Mapping[str, int],
) -> Journey:
    """Return where frames were lost, from the reports of who sends and of who receives, and our own counts.

    Reports are not taken at the same instant, so a few frames may be on their way: a step that seems to have
    more at its end than at its beginning lost none.
    """
    sent = {} if sender is None else sender.counts
    got = {} if receiver is None else receiver.counts
    steps = [
        *_step("the sender's encoder", sent.get("captured"), sent.get("encoded"), "not encoded"),
        *_step("the sender's queue", sent.get("encoded"), sent.get("sent"), "encoded and not sent"),
        *_step("the network", sent.get("sent"), got.get("received"), "sent and not received"),
        *_step("the receiver's decoder", got.get("received"), _less(got), "dropped by the decoder"),
        *_step("the way into the basin", _less(got), offered, "decoded and not offered"),
    ]
    reasons = {why: count for why, count in dropped.items() if count}
    steps.append(Step("the basin", offered, sum(reasons.values()), reasons))
    waiting = max(0, offered - served - sum(reasons.values()))
    limited = {} if sender is None else {why: s for why, s in sender.limited_by.items() if s}
    return Journey((*steps, Step("the models, not answered yet", offered, 0, {"waiting": waiting})), limited)


def _step(name: str, came: int | None, went: int | None, why: str) -> list[Step]:
    if came is None or went is None:
        return []
    lost = max(0, came - went)
    return [Step(name, came, lost, {why: lost} if lost else {})]


def _less(got: Mapping[str, int]) -> int | None:
    received = got.get("received")
    return None if received is None else max(0, received - got.get("decoder_dropped", 0))


def _grown(before: int, now: int) -> int:
    return now - before if now >= before else now


def _count(entry: Mapping[str, Any], word: str) -> int | None:
    value = entry.get(word)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value)


def _entries(report: object) -> list[Mapping[str, Any]]:
    found: Any = report
    if found.__class__ is dict:
        found = [found] if isinstance(found.get("type"), str) else list(found.values())
    entries: list[Mapping[str, Any]] = []
    if found.__class__ is list and len(found) <= ENTRIES_MAX:
        entries = [entry for entry in found if entry.__class__ is dict]
    if not entries:
        raise InvalidError(
            f"a getStats report is a list of entries, or an object of them by id, 1 to {ENTRIES_MAX}"
        )
    return entries
