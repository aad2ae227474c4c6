"""Renewals: when the leases in hand are renewed, and what progress and checkpoints go along."""

from forebay.core.actions import Renew
from forebay.core.hand import Hand
from forebay.core.job import Claim
from forebay.core.replicas import Item

PROGRESS_S = 0.5  # progress is stored at most this often
CHECKPOINT_S = 0.1  # and checkpoints: what is not stored is lost with the whole server
PASSES = 3  # renewal passes in one lease time
# A lease younger than this share of its time is left to the next pass. With it every lease meets two
# passes before it ends, so one lost renewal never costs a lease.
FRESH_SHARE = 1 / 6


class Renewals:
    """Renews every lease in hand a few times in its life. A hand with nothing old costs nothing."""

    __slots__ = ("_lease_s", "_news", "_news_at", "_pause_s", "_renewed_at")

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._renewed_at: float | None = None
        self._news: dict[int, Item] = {}  # what said something since it was last stored
        self._news_at = float("-inf")  # when news were last stored
        self._pause_s = PROGRESS_S  # from then to the next

    def all_now(self) -> None:
        """Renew everything at the next poll, however fresh."""
        self._renewed_at = None

    def progressed(self, item: Item, progress: bytes) -> None:
        """Take in progress; the newest of each item is stored."""
        item.progress = progress
        self._news[item.tag] = item

    def checkpointed(self, item: Item, checkpoint: bytes) -> None:
        """Take in a checkpoint; the newest of each item is stored, sooner than progress."""
        item.checkpoint = checkpoint
        self._news[item.tag] = item
        self._pause_s = CHECKPOINT_S

    def due(self, hand: Hand, now: float) -> Renew | None:
        """Return what to ask the engine now, None when nothing is due."""
        items: list[Item] = []
        if self._renewed_at is None or now >= self._renewed_at + self._lease_s / PASSES:
            every = self._renewed_at is None
            self._renewed_at = now
            fresh_until = now + self._lease_s * (1 - FRESH_SHARE)
            items = [item for item in hand.items.values() if item.until <= fresh_until or every]
        if self._news and now >= self._news_at + self._pause_s:
            self._news_at = now
            self._pause_s = PROGRESS_S
            chosen = {item.tag for item in items}
            items += [item for tag, item in self._news.items() if tag not in chosen and tag in hand.items]
            self._news = {}
        items = [item for item in items if not item.lease.request]  # no engine knows of those
        if not items:
            return None
        # A checkpoint goes along every time: should one renewal fail, the next one brings it.
        claims = [
            Claim(item.lease.job.id, item.lease.fence, item.progress, item.checkpoint) for item in items
        ]
        for item in items:
            item.progress = None
        return Renew(claims, [item.tag for item in items])

    def wake_at(self, hand: Hand) -> float | None:
        """Return when something will be due, None when nothing will."""
        if not hand.items:
            return None
        at = None if self._renewed_at is None else self._renewed_at + self._lease_s / PASSES
        if self._news:
            news_at = self._news_at + self._pause_s
            at = news_at if at is None else min(at, news_at)
        return at
