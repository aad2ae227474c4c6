"""RestartPolicy: when a child that died is started again, and when its replica counts as crash-looping."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """The first restart is immediate; quick deaths in a row wait longer, up to a cap, for ever.

    A death is quick when the child lived less than `stable_s` after it was ready, or never was.
    """

    base_s: float = 0.2
    factor: float = 2.0
    cap_s: float = 30.0
    stable_s: float = 10.0
    loop_after: int = 4  # quick deaths in a row from which the replica is shown as crash_loop

    def quick(self, *, lived_s: float | None) -> bool:
        """Say whether a death counts as quick; `lived_s` None means it was never ready."""
        return lived_s is None or lived_s < self.stable_s

    def delay_s(self, *, quick_deaths: int) -> float:
        """Return the seconds to wait before the next start after so many quick deaths in a row."""
        if quick_deaths <= 1:
            return 0.0
        try:
            return min(self.cap_s, self.base_s * self.factor ** (quick_deaths - 2))
        except OverflowError:
            return self.cap_s

    def looping(self, *, quick_deaths: int) -> bool:
        """Say whether the replica is in a crash loop."""
        return quick_deaths >= self.loop_after
