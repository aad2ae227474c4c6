"""AsyncClient, AsyncJob: the client for programs that await."""

import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from forebay.client import arguments, blobs, bulk, plans, wire
from forebay.client.ahead import AsyncLooksAhead
from forebay.client.arguments import LIST_MAX, RESULT_TIMEOUT, RETRY_BUDGET, SubmitOptions
from forebay.client.cancelling import AsyncCancelsMany
from forebay.client.carry import CONCURRENCY, Progress
from forebay.client.crons import AsyncCrons
from forebay.client.drive import adrive
from forebay.client.events import EVENTS_TIMEOUT, Following, JobEvent
from forebay.client.letters import AsyncLetters
from forebay.client.linking import AsyncLinking
from forebay.client.looking import AsyncLooks
from forebay.client.mapping import MapRun, in_order
from forebay.client.plans import Plan, Terms
from forebay.client.policy import RETRY_FOR_S, UNREACHABLE_FOR_S, Known
from forebay.client.predicting import AsyncPredicts
from forebay.client.records import BlobRef, JobFacts, Mapped, Verdict
from forebay.client.streaming import afollow, aparts
from forebay.client.transport import TIMEOUT_S, AsyncTransport, link
from forebay.client.wire import Call, View

T = TypeVar("T")
Views = list[View]  # inside the class `list` is a verb
Verdicts = list[Verdict]


class AsyncJob(JobFacts):
    """A job at the server, with what the server last said of it in `view`."""

    __slots__ = ("_client",)

    def __init__(self, view: View, client: "AsyncClient") -> None:
        super().__init__(view)
        self._client = client

    async def refresh(self) -> "AsyncJob":
        """Ask the server how the job stands now; returns itself."""
        self.view = (await self._client.get(self.job_id)).view
        return self

    async def result(self, timeout: str | float = RESULT_TIMEOUT) -> Any:
        """Return the result, waiting up to `timeout` for it; a server restart in between does not matter.

        Raises JobFailedError when the job ended without one, NotFinishedError when time ran out: the job
        goes on then. Keeps `view` up to date.
        """
        self.view = (await self._client.ended(self.job_id, timeout=timeout)).view
        return await self._client.run(plans.outcome(self.view, self._client.terms))

    async def events(self, timeout: str | float = EVENTS_TIMEOUT) -> AsyncIterator[JobEvent]:
        """Yield what happens to the job, to its end; see `AsyncClient.events`. Keeps `view` up to date."""
        async for event in self._client.events(self.job_id, timeout=timeout):
            self.view = event.data if event.kind == "done" else self.view
            yield event

    async def cancel(self) -> "AsyncJob":
        """Ask for the job to be cancelled; returns itself. A running job ends a little later."""
        self.view = (await self._client.cancel(self.job_id)).view
        return self


class AsyncClient(
    AsyncLetters, AsyncCancelsMany, AsyncLooks, AsyncLooksAhead, AsyncCrons, AsyncLinking, AsyncPredicts
):
    """One Forebay server, awaited: at `url`, else where the settings say (FOREBAY_URL), with their key.

    Every verb tries again where that is safe, for up to `retry_for` without progress, never earlier than
    the server asked; a server that was never reached is given up after `unreachable_for`, or `retry_for`
    when that is shorter, with UnreachableError. Refusals are raised as the ForebayError of their code.
    `budget`, `backoff`, `hold_back` and `retry_budget` are those of Client. For one event loop.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: str | float = TIMEOUT_S,
        retry_for: str | float = RETRY_FOR_S,
        unreachable_for: str | float = UNREACHABLE_FOR_S,
        backoff: str = "standard",
        budget: str | None = None,
        hold_back: bool = True,
        retry_budget: str | float = RETRY_BUDGET,
    ) -> None:
        place = link(*arguments.server(url, api_key), timeout, arguments.budget(budget))
        reach_s = arguments.seconds("unreachable_for", unreachable_for)
        retry_s = arguments.seconds("retry_for", retry_for)
        waits = arguments.backoff(backoff)
        known = Known(hold_back=hold_back, retries_per_s=arguments.retry_budget(retry_budget))
        self.terms = Terms(time.monotonic, random.random, retry_s, reach_s, place.url, known, waits)
        self.transport = AsyncTransport(place)

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self, plan: Plan[T]) -> T:
        """Return what a plan of forebay.client.plans comes to."""
        return await adrive(plan, self.transport)

    async def submit(
        self,
        task: str,
        payload: object,
        *,
        priority: str | int | None = None,
        ttl: str | float | None = None,
        deadline: Any = None,
        run_at: Any = None,
        idempotency_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        attempts_max: int | None = None,
        callback_url: str | None = None,
        ordering_key: str | None = None,
        wait: str | float = 0.0,
    ) -> AsyncJob:
        """Submit one job. Returns once the server has stored it, or, with `wait`, once it has ended or
        that time has passed.

        Bytes, paths and open files in the payload are uploaded first, and so is a JSON payload that is too
        large for a submission: see `put_blob`.

        A lost answer is repeated under the same idempotency key, so it makes one job; a key of your own
        makes that hold across restarts of your program too.
        """
        chosen = arguments.options(
            priority=priority,
            ttl=ttl,
            deadline=deadline,
            run_at=run_at,
            metadata=metadata,
            attempts_max=attempts_max,
            callback_url=callback_url,
            ordering_key=ordering_key,
        )
        payload = await self.run(blobs.settled(payload, self.terms))
        body, key = arguments.one(task, payload, chosen, idempotency_key)
        call = wire.submit_call(body, key, arguments.seconds("wait", wait), task)
        return AsyncJob(await self.run(plans.ask(call, self.terms)), self)

    async def submit_many(
        self,
        task: str,
        payloads: Iterable[object],
        **options: Unpack[SubmitOptions],
    ) -> Verdicts:
        """Submit many jobs in few calls; large payloads are uploaded as by `submit`. Returns one verdict per
        payload, in order; each stands alone."""
        chosen = arguments.options(**options)
        return await self.run(bulk.submit_payloads(task, payloads, chosen, self.terms))

    async def get(self, job_id: str, *, wait: str | float = 0.0) -> AsyncJob:
        """Return a job, at once, or at its next change or after `wait`. Raises NotFoundError or GoneError."""
        return AsyncJob(
            await self.run(plans.ask(wire.show_call(job_id, arguments.seconds("wait", wait)), self.terms)),
            self,
        )

    async def result(self, job_id: str, *, timeout: str | float = RESULT_TIMEOUT) -> Any:
        """Return the result of a job; see `AsyncJob.result`."""
        return await self.run(plans.result(job_id, arguments.seconds("timeout", timeout), self.terms))

    async def ended(self, job_id: str, *, timeout: str | float = RESULT_TIMEOUT) -> AsyncJob:
        """Return a job once it has ended, however it ended. Raises NotFinishedError when time ran out."""
        found = await self.run(plans.ended(job_id, arguments.seconds("timeout", timeout), self.terms))
        return AsyncJob(found, self)

    async def put_blob(self, source: blobs.BlobSource, media_type: str | None = None) -> BlobRef:
        """Store large bytes and return what a payload names them by. A str or path is that of a file. What
        cannot be read a second time (an iterable, a pipe) is sent once and not tried again."""
        return await self.run(blobs.put(source, media_type, self.terms))

    async def get_blob(
        self, blob: BlobRef | str | Mapping[str, str], to: str | PathLike[str] | None = None
    ) -> bytes:
        """Return the bytes of a blob; with `to` they go to that file, whole or not at all."""
        with blobs.sink_of(to) as sink:
            return await self.run(blobs.get(blob, sink, self.terms))

    async def erase_blob(self, blob: BlobRef | str | Mapping[str, str], *, force: bool = False) -> View:
        """Remove a blob for good. Raises StateConflictError while a job names it, unless forced."""
        return await self.run(plans.ask(blobs.erase_call(blob, force=force), self.terms))

    def events(self, job_id: str, *, timeout: str | float = EVENTS_TIMEOUT) -> AsyncIterator[JobEvent]:
        """Yield what happens to a job, to the `done` event with the finished job. Connects anew and goes on
        behind the last event. Raises NotFoundError, GoneError, NotFinishedError when `timeout` is over."""
        return afollow(Following(job_id, arguments.seconds("timeout", timeout), self.terms), self.transport)

    def stream(
        self,
        task: str,
        payload: object,
        *,
        idempotency_key: str | None = None,
        timeout: str | float = EVENTS_TIMEOUT,
        **options: Unpack[SubmitOptions],
    ) -> AsyncIterator[Any]:
        """Submit one job and yield the parts of its output as they come, each once. Raises as `result` does,
        and StreamRestartedError when a new attempt yields other parts than those given out."""
        chosen = arguments.options(**options)
        first = wire.submit_stream_call(*arguments.one(task, payload, chosen, idempotency_key))
        following = Following("", arguments.seconds("timeout", timeout), self.terms, first)
        return aparts(following, self.terms, self.transport)

    async def cancel(self, job_id: str) -> AsyncJob:
        """Cancel a job. Raises StateConflictError when it had ended otherwise."""
        return AsyncJob(await self.run(plans.ask(Call("DELETE", wire.job_path(job_id)), self.terms)), self)

    async def deliveries(self, job_id: str) -> Views:
        """Return what became of the callback of a job: none before its end, else one with its tries."""
        return wire.objects_of(
            (await self.run(plans.ask(wire.deliveries_call(job_id), self.terms))).get("items")
        )

    async def replay_deliveries(self, job_id: str) -> Views:
        """Tell the callback of a job once more, at once. Raises StateConflictError when there is none."""
        return wire.objects_of(
            (await self.run(plans.ask(wire.deliveries_call(job_id, replay=True), self.terms))).get("items")
        )

    async def amend(
        self, job_id: str, *, priority: str | int | None = None, task: str | None = None
    ) -> AsyncJob:
        """Give a job that waits another priority or task. Raises StateConflictError once it runs or ended."""
        return AsyncJob(
            await self.run(plans.ask(arguments.amendment(job_id, priority, task), self.terms)), self
        )

    async def list(
        self,
        *,
        status: str | None = None,
        task: str | None = None,
        metadata: Mapping[str, str] | None = None,
        limit: int = LIST_MAX,
    ) -> "list[AsyncJob]":
        """Return up to `limit` jobs, newest first."""
        filters = arguments.filters(status, task, metadata)
        views = await self.run(plans.rows("/v1/jobs", filters, limit, self.terms))
        return [AsyncJob(view, self) for view in views]

    async def queue(self, task: str) -> View:
        """Return one queue."""
        return await self.run(plans.ask(wire.queue_call(task), self.terms))

    async def pause(self, task: str) -> View:
        """Stop handing out jobs of a task; it still accepts. Returns the queue."""
        return await self.run(plans.ask(wire.queue_call(task, "pause"), self.terms))

    async def resume(self, task: str) -> View:
        """Hand out jobs of a task again. Returns the queue."""
        return await self.run(plans.ask(wire.queue_call(task, "resume"), self.terms))

    async def drain(self, task: str) -> View:
        """Refuse new jobs of a task and finish those there are. Returns the queue."""
        return await self.run(plans.ask(wire.queue_call(task, "drain"), self.terms))

    async def erase(self, *, tenant: str | None = None, metadata: Mapping[str, str] | None = None) -> View:
        """Remove all jobs of a tenant, or of whom the metadata names, with their results. Returns `removed`,
        `running`, `done`, `scrubbed` of one bounded part: ask again until it is done."""
        return await self.run(plans.ask(wire.erase_call(tenant, metadata), self.terms))

    def map(
        self,
        task: str,
        items: Iterable[object] | AsyncIterable[object],
        *,
        rate: str | float | None = None,
        concurrency: int = CONCURRENCY,
        retry_for: str | float | None = None,
        run_id: str | None = None,
        return_errors: bool = False,
        progress: Callable[[Progress], None] | None = None,
        **options: Unpack[SubmitOptions],
    ) -> AsyncIterator[Any]:
        """Submit every item and yield the results in order; an error is raised in its turn, or yielded in
        its place with `return_errors`. Else as `map_as_completed`.
        """
        run = MapRun(task, rate, concurrency, retry_for, run_id, progress, arguments.options(**options))
        return in_order(run, items, self.transport, self.terms, return_errors=return_errors)

    def map_as_completed(
        self,
        task: str,
        items: Iterable[object] | AsyncIterable[object],
        *,
        rate: str | float | None = None,
        concurrency: int = CONCURRENCY,
        retry_for: str | float | None = None,
        run_id: str | None = None,
        progress: Callable[[Progress], None] | None = None,
        **options: Unpack[SubmitOptions],
    ) -> AsyncIterator[Mapped]:
        """Submit every item and yield each once it has ended, with its result or its error.

        Paced by `rate` ("300/s") and by the server: a refusal holds the whole run, which ends with that
        refusal when nothing moved for `retry_for`. The idempotency keys are `run_id` and the position, so
        a run that was interrupted and is repeated with the same `run_id` and items makes no job twice.
        """
        run = MapRun(task, rate, concurrency, retry_for, run_id, progress, arguments.options(**options))
        return run.completed(items, self.transport, self.terms)
