"""What must hold of every job at every step: the short names, what they say, and how a breach is told."""

INVARIANTS = {
    "S1": "no acknowledged job is lost",
    "S2": "no job exists that nobody sent",
    "S3": "one idempotency key is one job; one request is one job",
    "T1": "a final job never changes",
    "T2": "a state changes along the table only",
    "T3": "once faults stop, every job ends",
    "L1": "at most one live lease, and nobody takes it before it ends",
    "L2": "every grant grows the fence, nothing else does",
    "L3": "only the holder of the current fence can write",
    "L4": "a lapsed lease cannot be renewed",
    "R1": "grants are counted when given, never more than allowed; neighbours of a death pay nothing",
    "R2": "a retry waits out its backoff, and no longer than its cap",
    "R3": "the stored result is the one that the accepted holder produced",
    "D1": "a dead letter says why",
    "X1": "nothing is granted or started after its ttl or deadline",
    "X2": "nothing starts after it was cancelled",
    "P1": "the most urgent ready job of a tenant is granted first, and whatever can be granted is",
    "K1": "of one ordering key one job runs at a time, in the order of acceptance",
    "B1": "a node holds a bounded number of jobs",
    "O1": "counts add up",
    "Q1": "a suspect runs alone",
}


class BrokenError(AssertionError):
    """An invariant does not hold. `invariant` is its short name in INVARIANTS."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant} ({INVARIANTS[invariant]}): {text}")
        self.invariant = invariant
