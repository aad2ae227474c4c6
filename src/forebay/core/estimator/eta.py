"""Eta: what is told of one job, and what is kept of the telling so that it can be scored."""

from typing import NamedTuple


class Eta(NamedTuple):
    """When a job is expected to have ended: seconds from now, half of the times and nine of ten.

    The other fields are for scoring and for admission: `starts_s` is when it is expected to start, and
    (`middle_s`, `scale_s`, `stage`) is the estimate before its calibration.
    """

    p50_s: float
    p90_s: float
    starts_s: float = 0.0
    middle_s: float = 0.0
    scale_s: float = 0.0
    stage: int = -1  # of `calibration.Calibration`; -1: not to be scored

    def later(self, wait_s: float) -> "Eta":
        """Return the same for a job that may not start before `wait_s` has passed."""
        more_s = max(0.0, wait_s - self.starts_s)
        return self._replace(
            p50_s=self.p50_s + more_s, p90_s=self.p90_s + more_s, starts_s=self.starts_s + more_s, stage=-1
        )
