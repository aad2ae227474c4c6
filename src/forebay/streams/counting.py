"""FrameCounts: what a queue of frames has done, by the counts of all its processes."""

from collections import Counter
from dataclasses import dataclass

from forebay.core.slots import AT_DOOR, COUNTERS, DOOR_AT, INNER, INNER_AT, SERVED_AT, SlotState, state_of
from forebay.streams.ring import Ring
from forebay.streams.slab import ACCEPTED, COUNTS, DEGRADED, SEATS_MAX, STATE


@dataclass(frozen=True, slots=True)
class FrameCounts:
    """Frames since the queue was made.

    When nothing moves, and the dead are audited, `sent == served + sum(dropped.values()) + queued + held`,
    exactly, whatever was killed when.
    """

    sent: int  # offered, but for those whose process died before they were taken in or refused
    accepted: int
    degraded: int  # accepted with the flag
    served: int
    queued: int
    held: int  # in readers' hands
    lingering: int  # served, but a view of them still lives
    dropped: "Counter[str]"


def count(ring: Ring) -> FrameCounts:
    """Return the counts of now. While frames move they may be apart by those in motion."""
    words, slab = ring.slab.words, ring.slab
    bases = [slab.seat(seat) for seat in range(SEATS_MAX)]
    sums = [sum(words[base + COUNTS + at] for base in bases) for at in range(len(COUNTERS))]
    states = Counter(state_of(words[slab.row(slot) + STATE]) for slot in range(slab.form.slots))
    dropped: Counter[str] = Counter()
    for reason in AT_DOOR:
        dropped[reason.value] += sums[DOOR_AT[reason]]
    refused = dropped.total()
    for reason in INNER:
        dropped[reason.value] += sums[INNER_AT[reason]]
    accepted = sum(words[base + ACCEPTED] for base in bases)
    return FrameCounts(
        sent=accepted + refused,
        accepted=accepted,
        degraded=sum(words[base + DEGRADED] for base in bases),
        served=sums[SERVED_AT],
        queued=states[SlotState.QUEUED],
        held=states[SlotState.TAKEN],
        lingering=states[SlotState.LINGERING],
        dropped=+dropped,
    )
