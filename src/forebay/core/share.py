"""Share: who is next where waiting requests and waiting jobs want the same replicas."""

CREDIT_S = 10.0  # by weight: nobody saves up more, nor owes more


class Share:
    """Start-time fairness of two sides by weight: the one that had less time for its share is next."""

    __slots__ = ("_lead_s", "_weights")

    def __init__(self, jobs_share: float) -> None:
        self._lead_s = 0.0  # time by weight that the jobs had more than the requests
        self._weights = (max(1e-9, 1.0 - jobs_share), max(1e-9, jobs_share))

    @property
    def of_jobs(self) -> float:
        """What jobs get of the time while requests wait too."""
        return self._weights[1]

    def jobs_next(self) -> bool:
        """Say whether it is the jobs' turn, where both wait."""
        return self._lead_s < 0.0

    def jobs_within(self, wait_s: float) -> bool:
        """Say whether it will be the jobs' turn before requests have had `wait_s` more."""
        return self._lead_s - wait_s / self._weights[0] < 0.0

    def had(self, *, jobs: bool, run_s: float) -> None:
        """Take in a run that was begun while the other side wanted the replica too."""
        spent_s = run_s / self._weights[jobs]
        lead_s = self._lead_s + (spent_s if jobs else -spent_s)
        self._lead_s = max(-CREDIT_S, min(CREDIT_S, lead_s))
