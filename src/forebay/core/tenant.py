"""Scope, Limits, Held: what a key may do, what a tenant may hold, and what it holds now."""

import re
from enum import Enum
from typing import Final, NamedTuple

from forebay.core.fairness import Share

TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
TENANT_RULE: Final = "1 to 64 of A-Z a-z 0-9 _ . - and begin with a letter or digit"


class Scope(str, Enum):
    """One thing a key may do. `admin` includes every other one."""

    SUBMIT = "submit"  # make jobs, anew or again
    READ = "read"
    CANCEL = "cancel"  # end or remove jobs
    ADMIN = "admin"  # every tenant, the taps of the queues, metrics, workers
    WORKER = "worker"  # lease and settle


EVERY_SCOPE = frozenset(Scope)
SCOPES_DEFAULT = frozenset({Scope.SUBMIT, Scope.READ, Scope.CANCEL})


class Limits(NamedTuple):
    """What one tenant may do, all its keys together. None: no limit of its own."""

    rate_per_s: float | None = None  # jobs submitted
    burst: float | None = None  # jobs at once; None: one second's worth, at least 1
    bytes_per_s: float | None = None  # payload and metadata submitted
    jobs_max: int | None = None  # open jobs
    bytes_max: int | None = None  # of open jobs
    running_max: int | None = None
    weight: float = 1.0  # its share beside other tenants

    @property
    def share(self) -> Share:
        """What of it the engine keeps to."""
        return Share(self.weight, self.running_max)


class Held(NamedTuple):
    """What one tenant holds: its open jobs and their bytes."""

    jobs: int = 0
    bytes: int = 0
