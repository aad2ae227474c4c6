"""Smooth: what frames need of a set of replicas, and what that leaves to jobs while frames come.

A frame that meets a run of jobs waits for the rest of it: nothing that runs is broken off. So jobs get the
replicas that frames did not use at once lately, and of the others a share too small to be seen in a p99.
"""

LIVE_S = 2.0  # so long after the last frame the replicas are still kept for the next
PEAK_S = 10.0  # the most replicas at once is remembered for one to two times as long
MET_SHARE = 0.002  # of the time of a replica that frames use: what they may find in runs of jobs
WAKE_S = 1e-6  # whoever was woken for an instant is there, whatever the rounding of its sums
RIDE_SHARE = 0.1  # a run of frames may be so much longer for the jobs that ride along


class Smooth:
    """The frames of one lane: when they came, and how many replicas they used at once."""

    __slots__ = ("_before", "_began_at", "_lent_at", "_since", "_top", "at")

    def __init__(self) -> None:
        self.at = float("-inf")  # when the last frame came
        self._began_at = 0.0  # the first of those that came one after another
        self._since = 0.0  # when the span that is watched now began
        self._top = self._before = 0  # most replicas at once in this span, and in the one before
        self._lent_at = 0.0  # when jobs last had a run on a replica that frames use

    def live(self, now: float) -> bool:
        """Say whether frames come."""
        return now - self.at <= LIVE_S

    def came(self, now: float) -> None:
        """Count a frame that came, whatever becomes of it."""
        if not self.live(now):
            self._began_at = self._since = self._lent_at = now
            self._top = self._before = 0
        self.at = max(self.at, now)

    def used(self, replicas: int, now: float) -> None:
        """Take in that frames use so many replicas now, or would if there were one more."""
        if now - self._since >= PEAK_S:
            self._before, self._top = (self._top, 0) if now - self._since < 2 * PEAK_S else (0, 0)
            self._since = now
        self._top = max(self._top, replicas)

    def kept(self, replicas: int, now: float) -> int:
        """Return how many of so many replicas are kept for frames: all until it is known what they use."""
        if now - self._began_at < PEAK_S:
            return replicas
        return min(replicas, max(1, self._top, self._before))

    def lends(self, run_s: float, now: float) -> bool:
        """Say whether a run of jobs this long may go to a replica that frames use."""
        return (now - self._lent_at) * MET_SHARE >= run_s

    def lent(self, now: float) -> None:
        """Count such a run. Nothing is saved up for a second one."""
        self._lent_at = now

    def wake_at(self, run_s: float, now: float) -> float:
        """Return when jobs that wait may get more than now: no frame came any more, the first span is over,
        or a run of `run_s` is lent to them."""
        times = (self.at + LIVE_S, self._began_at + PEAK_S, self._lent_at + run_s / MET_SHARE)
        return min(at + WAKE_S for at in times if at + WAKE_S > now)
