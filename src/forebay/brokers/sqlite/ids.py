"""IdMint: job ids of uuid7 form that carry the row's sequence number and a keyed tag.

    mmmmmmmm-mmmm-7sss-8sss-sssstttttttt      m: milliseconds, s: sequence, t: tag

The sequence finds the row without an index over ids. The tag is keyed with a secret of the store, so an
id nobody was given is not found. Ids sort by time, then by sequence, and so does the table.
"""

from forebay.core.numbered_ids import suffixes_of

SEQ_MAX = (1 << 40) - 1
MS_MAX = (1 << 48) - 1
_GIVEN_MAX = 10_000  # ids remembered between giving one out and reading it back


class IdMint:
    """Gives out ids and reads them back. Not for use by several threads."""

    def __init__(self, secret: bytes, *, seq: int = 1, ms: int = 0) -> None:
        self._secret = secret
        self.seq = seq  # the next one to give out
        self._ms = ms
        self._prefix = _prefix(ms)
        self._block = -1
        self._suffixes: tuple[str, ...] = ()
        self._given: dict[str, tuple[int, int]] = {}
        self._seen = ("", 0)  # prefix and milliseconds of the id read last: neighbours share them

    def new(self, now: float) -> str:
        """Return the next id; its milliseconds never run backwards."""
        ms = int(now * 1000)
        if ms > self._ms:
            self._ms = min(ms, MS_MAX)
            self._prefix = _prefix(self._ms)
        seq = self.seq
        self.seq = seq + 1
        if seq >> 4 != self._block:
            self._turn(seq >> 4)
        job_id = self._prefix + self._suffixes[seq & 15]
        if len(self._given) >= _GIVEN_MAX:
            self._given.clear()
        self._given[job_id] = (self._ms, seq)
        return job_id

    def text(self, ms: int, seq: int) -> str:
        """Return the id of the row `seq` whose id was made at `ms`."""
        if seq >> 4 != self._block:
            self._turn(seq >> 4)
        prefix = self._prefix if ms == self._ms else _prefix(ms)
        return prefix + self._suffixes[seq & 15]

    def read(self, job_id: str) -> tuple[int, int] | None:
        """Return (milliseconds, sequence) of an id this store could have given out, else None."""
        given = self._given.pop(job_id, None)
        if given is not None:  # read for the first time, to be stored: the common case costs nothing
            return given
        if len(job_id) != 36:
            return None
        prefix = job_id[:15]
        try:
            seq = int(job_id[15:18] + job_id[20:23] + job_id[24:28], 16)
            ms = self._seen[1] if prefix == self._seen[0] else int(job_id[:8] + job_id[9:13], 16)
        except ValueError:
            return None
        if seq < 0 or ms < 0 or seq >= self.seq:
            return None
        if seq >> 4 != self._block:
            self._turn(seq >> 4)
        if job_id[15:] != self._suffixes[seq & 15] or prefix != (
            self._prefix if ms == self._ms else _prefix(ms)
        ):
            return None
        self._seen = (prefix, ms)
        return ms, seq

    @staticmethod
    def seq_of(job_id: str) -> int:
        """Return the sequence of an id that this store gave out; not for ids that came from outside."""
        return int(job_id[15:18] + job_id[20:23] + job_id[24:28], 16)

    def skip_to(self, seq: int, ms: int) -> None:
        """Never again give out a sequence below `seq` or a time before `ms`."""
        self.seq = max(self.seq, seq)
        if ms > self._ms:
            self._ms = ms
            self._prefix = _prefix(ms)

    def _turn(self, block: int) -> None:
        self._suffixes = suffixes_of(self._secret, block)
        self._block = block


def _prefix(ms: int) -> str:
    digits = "%012x" % ms
    return f"{digits[:8]}-{digits[8:]}-7"
