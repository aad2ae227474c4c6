"""Deadly: the table of inputs that killed workers, and the same in memory."""

from collections.abc import Sequence
from typing import Final

import apsw

from forebay.brokers.sqlite.journal import Journal
from forebay.core.job import Charge, Job
from forebay.core.quarantine import Change, DeadlyInput, Inputs

_COLUMNS: Final = "fingerprint, task, version, tenant, deaths, job_id, since, at, condemned_at"
_PUT: Final = f"INSERT OR REPLACE INTO deadly_inputs({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)"
_DROP: Final = "DELETE FROM deadly_inputs WHERE fingerprint = ?"


class Deadly:
    """Every row is in memory too: submissions are held against it. Used inside an open transaction."""

    def __init__(self, connection: apsw.Connection, journal: Journal) -> None:
        self.inputs = Inputs()
        self._connection = connection
        self._journal = journal

    def load(self) -> None:
        """Read the table into memory."""
        rows = [
            DeadlyInput(*row) for row in self._connection.execute(f"SELECT {_COLUMNS} FROM deadly_inputs")
        ]
        self.inputs.apply([(row.task, row.fingerprint, row) for row in rows])

    def write(self, changes: Sequence[Change]) -> None:
        """Store what changed."""
        self._journal.undo_by(self.inputs.apply, self.inputs.apply(changes))
        for _, fingerprint, row in changes:
            if row is None:
                self._connection.execute(_DROP, (fingerprint,))
            else:
                self._connection.execute(_PUT, row)

    def charge(self, job: Job, charge: Charge, at: float) -> None:
        """Count what the end of an attempt says of its input."""
        changes = self.inputs.charged(job, charge, at=at)
        if changes:
            self.write(changes)
