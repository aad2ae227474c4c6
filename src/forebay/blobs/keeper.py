"""Keeper: a BlobStore for one server: off the event loop, counted, and swept of what no job names.

A blob lives while a stored job names it, and for `grace_s` after it was made. Between the look whether a job
names it and its deletion nobody can begin to name it: a claim of a doomed blob waits until the sweep is done,
and a claimed one is not doomed. So no accepted job ever names a blob that is gone; what a crash leaves is
garbage, and the next sweep takes it.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, TypeVar

from forebay.core.blobs import CHANCE_BYTES, BlobInfo, belongs, created_at, is_id, new_id
from forebay.errors import ForebayError
from forebay.loops import goes_on
from forebay.ports.blobs import BlobStore, BlobWriter
from forebay.ports.clock import Clock

T = TypeVar("T")

THREADS_MAX: Final = 16  # calls of the store at once; more wait
SWEEP_S: Final = 60.0  # between two sweeps, or the grace when that is shorter
SWEEP_PART: Final = 256  # blobs looked at together
UNFINISHED_S: Final = 3_600.0  # a writer that wrote nothing for so long is gone


class Keeper:
    """The blobs of this process. `held` asks the engine which blobs stored jobs name."""

    def __init__(
        self,
        store: BlobStore,
        *,
        held: Callable[[Sequence[str]], Awaitable[list[bool]]],
        clock: Clock,
        grace_s: float,
        on_failure: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        self.store = store
        self.grace_s = grace_s
        self.bytes_in = self.bytes_out = 0  # through this process
        self.made = self.removed = 0  # blobs
        self._held = held
        self._clock = clock
        self._on_failure = on_failure
        self._claims: Counter[str] = Counter()
        self._doomed: frozenset[str] = frozenset()
        self._spared: asyncio.Event | None = None  # set when the doomed of now are gone or spared
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="blobs")
        self._task: asyncio.Task[None] | None = None

    async def call(self, verb: Callable[..., T], *args: Any) -> T:
        """Return what a blocking verb of the store returns; the loop goes on meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, verb, *args)

    async def begin(self, tenant: str, media_type: str) -> tuple[str, BlobWriter]:
        """Return a new id, claimed, and its writer. Release it in the end."""
        now = self._clock.now()
        blob_id = new_id(tenant, now=now, chance=secrets.token_bytes(CHANCE_BYTES))
        self._claims[blob_id] += 1
        try:
            return blob_id, await self.call(self.store.begin, blob_id, media_type)
        except BaseException:
            self.release((blob_id,))
            raise

    async def claim(self, blob_id: object, tenant: str) -> BlobInfo | None:
        """Return what is known of a blob of this tenant, which stays until `release`; None, and nothing is
        claimed, when there is none."""
        if not is_id(blob_id) or not belongs(str(blob_id), tenant):
            return None
        return await self.claim_any(str(blob_id))

    async def claim_any(self, blob_id: str) -> BlobInfo | None:
        """The same whosever it is. `blob_id` has the form of one."""
        while blob_id in self._doomed:
            assert self._spared is not None
            await self._spared.wait()
        self._claims[blob_id] += 1
        info = None
        try:
            info = await self.call(self.store.head, blob_id)
        finally:
            if info is None:
                self.release((blob_id,))
        return info

    def release(self, ids: Sequence[str]) -> None:
        """End claims: what was claimed is named by a stored job now, or by nobody."""
        for blob_id in ids:
            self._claims[blob_id] -= 1
            if self._claims[blob_id] <= 0:
                del self._claims[blob_id]

    async def erase(self, blob_id: str) -> bool:
        """Remove a blob whoever names it; False when there was none. Jobs that name it fail when they read
        it."""
        return await self.call(self.store.delete, blob_id)

    def counts(self) -> dict[str, int]:
        """Return what went through this process."""
        return {
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "made": self.made,
            "removed": self.removed,
        }

    # -- the sweep ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Sweep again and again until `close`."""
        self._task = asyncio.ensure_future(goes_on(self._run, "sweep blobs"))

    async def close(self) -> None:
        """Stop. Twice is harmless."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def sweep(self) -> int:
        """Remove every blob that is older than the grace and that no job names; return how many went."""
        now = self._clock.now()
        ids = self.store.ids()
        gone = 0
        while part := await self.call(_some, ids, SWEEP_PART):
            gone += await self._sweep_part([one for one in part if created_at(one) <= now - self.grace_s])
        await self.call(self.store.clear_unfinished, now - max(self.grace_s, UNFINISHED_S))
        self.removed += gone
        return gone

    async def _sweep_part(self, old: list[str]) -> int:
        doomed = frozenset(one for one in old if one not in self._claims)
        if not doomed:
            return 0
        self._doomed, self._spared = doomed, asyncio.Event()
        gone = 0
        try:
            ids = list(doomed)
            for blob_id, held in zip(ids, await self._held(ids), strict=True):
                if not held:
                    gone += await self.call(self.store.delete, blob_id)
        finally:
            self._doomed = frozenset()
            self._spared.set()
        return gone

    async def _run(self) -> None:
        await self._clock.sleep(min(SWEEP_S, self.grace_s))
        try:
            await self.sweep()
        except ForebayError as error:
            if self._on_failure is not None:
                self._on_failure("sweep of blobs", error)


def _some(ids: Iterator[str], count: int) -> list[str]:
    return list(islice(ids, count))
