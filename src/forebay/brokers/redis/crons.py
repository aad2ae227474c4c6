"""RedisCrons: the marks of cron entries; two servers that are due at once fire once."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from forebay.brokers.redis.intake import checked, entered
from forebay.brokers.redis.store import STALE_TRIES_MAX, Store, Tx, pairs
from forebay.core.crons import CronMark, is_dealt_with, moved, steered
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.errors import StoreUnavailableError

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(CronMark).decode
# Stands for the receipt while the mark is made: which job it is, the script stores beside it.
_TO_COME: Final = Receipt(Verdict.STORED, "", State.QUEUED)


class RedisCrons:
    """A ports.crons.Crons. A mark is decided here and put in the place of the one that was seen, or not."""

    def __init__(self, write: Any, store: Store) -> None:
        self._write = write
        self._store = store

    async def marks(self) -> list[CronMark]:
        """Return what is known of every entry ever seen, by name."""
        return sorted(mark for mark, _ in _marks(await self._store.read("marks")).values())

    async def fire(
        self, name: str, due_at: float, job: Job | None, *, when: str, skipped: str = "", now: float
    ) -> Receipt | None:
        """Store the job of a due instant and move the mark, durably and in one step."""

        def decide(mark: CronMark | None, _: float) -> CronMark | None:
            if is_dealt_with(mark, due_at, job, when=when, skipped=skipped):
                return None
            receipt = None if job is None else _TO_COME
            return moved(mark, name, due_at, receipt, when=when, skipped=skipped)

        _, receipt = await self._put(name, decide, job, now)
        return receipt

    async def steer(self, name: str, *, paused: bool, now: float) -> CronMark:
        """Pause an entry or let it go on, durably, and return its mark."""

        def decide(mark: CronMark | None, at: float) -> CronMark:
            return steered(mark or CronMark(name, "", at), paused, at)

        mark, _ = await self._put(name, decide, None, now)
        assert mark is not None
        return mark

    async def forget(self, names: Sequence[str], *, now: float) -> int:
        """Remove the marks of entries, durably; return how many there were."""

        async def work(tx: Tx) -> int:
            return int(await tx.run("unmark", names=list(names)))

        count: int = await self._write(work, now)
        return count

    async def _put(
        self,
        name: str,
        decide: Callable[[CronMark | None, float], CronMark | None],
        job: Job | None,
        now: float,
    ) -> tuple[CronMark | None, Receipt | None]:
        async def work(tx: Tx) -> tuple[CronMark | None, Receipt | None]:
            item = None if job is None else checked(job)
            for _ in range(STALE_TRIES_MAX):
                seen, text = _marks(await tx.read("marks")).get(name, (None, b""))
                mark = decide(seen, tx.now)
                if mark is None:
                    return None, None
                answer = await tx.run(
                    "mark",
                    name=name,
                    seen=text,
                    mark=_ENCODE(mark._replace(job_id=None)),
                    job=item,
                    at=float(now),
                )
                if answer != b"stale":
                    return mark, None if job is None else entered(tx, job, answer[0])
            raise StoreUnavailableError("too many servers move the mark of one entry", retry_after_s=1.0)

        put: tuple[CronMark | None, Receipt | None] = await self._write(work, now)
        return put


def _marks(found: Sequence[Any]) -> dict[str, tuple[CronMark, bytes]]:
    """Return every mark and its text, by name."""
    jobs = {name: job_id.decode() for name, job_id in pairs(found[1])}
    marks = [(_DECODE(text)._replace(job_id=jobs.get(name)), text) for name, text in pairs(found[0])]
    return {mark.name: (mark, text) for mark, text in marks}
