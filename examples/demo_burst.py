"""The work of the demo: a burst without patience, a paced client for the rest, one worker killed on the way.

Everything here is the public client against a real server. What happened is written down in a Story;
demo_report.py makes the figures of it.
"""

import base64
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import demo_app
import pages
from demo_screen import Screen
from demo_server import DemoError

import forebay
from forebay.client import Job, Mapped
from forebay.errors import NotFoundError, QueueFullError

TASK = "ReadInvoice"
QUEUE_MAX = 12  # jobs the server may hold in this demo; the default is 100,000
WORKERS = 2
BATCH_MAX = 4  # of demo_app.ReadInvoice
FIRST = 2  # pages read before the burst: a server that has measured nothing gives no ETA
# In the burst: whatever the workers take at once, the poison still waits, with pages behind it, so that
# its batch has others in it. The bomb is beyond the bound: it comes with the paced client.
POISON_AT = WORKERS * BATCH_MAX
BOMB_AT = QUEUE_MAX + 1
POISON_SIGNAL = signal.SIGSEGV.name
PAGES_MIN = BOMB_AT + FIRST + 1

RUN_WAIT_MAX_S = 1200.0
RETRY_FOR = "10m"  # of the paced client, without any progress
LOOK_EVERY_S = 0.1
BEFORE_KILL_S = 0.2  # so that the batch is really being read when its worker dies


@dataclass
class Item:
    """One submission: a page with its known text, or one of the two bad ones."""

    kind: str  # "page", "bomb", "poison"
    known: pages.Known | None
    payload: dict[str, str]


@dataclass
class Told:
    """What the server told of a job before it was done."""

    p50_s: float
    p90_s: float
    p50_at: str  # RFC 3339
    at_submit: bool  # else at first sight, for jobs that a map submitted


@dataclass
class Kill:
    """The worker process that the demo killed."""

    worker: str
    pid: int
    batch: int
    ended_before: int  # jobs that had ended then


@dataclass
class Story:
    """Everything that happened, as the server told it."""

    items: list[Item] = field(default_factory=list)
    job_ids: dict[str, int] = field(default_factory=dict)  # accepted: id -> place in items
    told: dict[str, Told] = field(default_factory=dict)
    refused_after_s: list[float] = field(default_factory=list)  # Retry-After of each refusal of the burst
    burst_count: int = 0
    burst_s: float = 0.0
    holds: int = 0  # refusals that made the paced client wait
    kill: Kill | None = None
    work_s: float = 0.0
    views: dict[str, dict[str, Any]] = field(default_factory=dict)  # the final records
    workers: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)


def make_items(count: int, seed: int) -> list[Item]:
    """`count` pages and the two bad ones, in the order in which they are submitted."""
    items = [Item("page", page.known, _payload(page.png)) for page in pages.stack(count, seed)]
    items.insert(FIRST + POISON_AT, Item("poison", None, _payload(demo_app.poison_page(seed, count))))
    items.insert(FIRST + BOMB_AT, Item("bomb", None, _payload(pages.bomb())))
    return items


def _payload(png: bytes) -> dict[str, str]:
    return {"image_b64": base64.b64encode(png).decode()}


class Burst:
    """One run of the demo's work."""

    def __init__(self, url: str, items: list[Item], screen: Screen) -> None:
        self.story = Story(items=items)
        self._client = forebay.Client(url)
        self._hasty = forebay.Client(url, retry_for=0)  # takes a refusal as it comes
        self._screen = screen
        self._mapped: list[Mapped] = []
        self._map_error: BaseException | None = None
        self._poison_id = ""
        self._busy_since: dict[tuple[int, frozenset[str]], float] = {}  # pid and what ran then

    def run(self) -> Story:
        began = time.monotonic()
        with self._client, self._hasty:
            self._first_pages()
            rest = self._all_at_once()
            thread = threading.Thread(target=self._paced, args=(rest,), name="paced", daemon=True)
            thread.start()
            self._watch(thread)
            self.story.work_s = time.monotonic() - began
            self._final_records()
        return self.story

    # -- submitting --------------------------------------------------------------------------------

    def _first_pages(self) -> None:
        places = range(FIRST)
        self._screen.say(f"{FIRST} pages first, so that the server has measured something to tell ETAs from")
        jobs = [self._client.submit(TASK, self.story.items[place].payload) for place in places]
        for place, job in zip(places, jobs, strict=True):
            self.story.job_ids[job.job_id] = place
            job.result(timeout=RUN_WAIT_MAX_S)

    def _all_at_once(self) -> list[int]:
        """Submit everything as fast as it goes. Returns the places that were refused."""
        story, refused = self.story, list[int]()
        began = time.monotonic()
        for place in range(FIRST, len(story.items)):
            try:
                job = self._hasty.submit(TASK, story.items[place].payload)
            except QueueFullError as refusal:
                refused.append(place)
                if refusal.retry_after_s is not None:
                    story.refused_after_s.append(refusal.retry_after_s)
                continue
            story.job_ids[job.job_id] = place
            if story.items[place].kind == "poison":
                self._poison_id = job.job_id
            self._note_eta(job, at_submit=True)
        story.burst_s = time.monotonic() - began
        story.burst_count = len(story.items) - FIRST
        self._screen.say(
            f"burst of {story.burst_count} in {story.burst_s * 1000:.0f} ms:"
            f" {story.burst_count - len(refused)} accepted, {len(refused)} refused"
        )
        return refused

    def _paced(self, places: list[int]) -> None:
        """In a thread: the refused ones again, by a client that comes back when it was told to."""
        payloads = (self.story.items[place].payload for place in places)

        def note(progress: Any) -> None:
            self.story.holds = progress.pressed

        try:
            with contextlib.closing(
                self._client.map_as_completed(TASK, payloads, retry_for=RETRY_FOR, progress=note)
            ) as ended:
                for item in ended:
                    if item.job_id is None:
                        raise item.error or DemoError("a submission of the paced client has no verdict")
                    self.story.job_ids[item.job_id] = places[item.place]
                    self._mapped.append(item)
        except Exception as error:
            self._map_error = error

    # -- watching ----------------------------------------------------------------------------------

    def _watch(self, paced: threading.Thread) -> None:
        """Look, tell, and kill once, until every job that was accepted has ended."""
        story, ends_at = self.story, time.monotonic() + RUN_WAIT_MAX_S
        while True:
            rows = self._client.list(task=TASK, limit=len(story.items))
            for job in rows:
                if job.job_id not in story.job_ids and job.job_id not in story.told and not job.done:
                    with contextlib.suppress(NotFoundError):
                        self._note_eta(self._client.get(job.job_id), at_submit=False)
            ended = sum(job.done for job in rows)
            if story.kill is None and ended > FIRST:  # the burst is being read, and most of it waits
                self._maybe_kill(rows, ended)
            running = sum(job.state == "running" for job in rows)
            self._screen.progress(ended, len(story.items), len(rows) - ended - running, running)
            if self._map_error is not None:
                raise DemoError(f"the paced client gave up: {self._map_error}")
            if ended == len(story.items) and not paced.is_alive():
                return
            if time.monotonic() > ends_at:
                raise DemoError(f"not done in {RUN_WAIT_MAX_S:g} s: {ended} of {len(story.items)} ended")
            time.sleep(LOOK_EVERY_S)

    def _note_eta(self, job: Job, *, at_submit: bool) -> None:
        eta = job.view.get("eta")
        if eta:
            self.story.told[job.job_id] = Told(eta["p50_s"], eta["p90_s"], eta["p50_at"], at_submit)

    def _maybe_kill(self, rows: list[Job], ended: int) -> None:
        """SIGKILL to a worker in the middle of a batch, once, while the poison is not being read."""
        running = frozenset(job.job_id for job in rows if job.state == "running")
        ready = [worker for worker in self._client.workers() if worker["state"] == "ready"]
        # `batch` is how many a worker was sent last; together they are what runs when all are at it.
        if self._poison_id in running or sum(worker["batch"] for worker in ready) != len(running):
            return
        now = time.monotonic()
        for worker in ready:
            since = self._busy_since.setdefault((worker["pid"], running), now)
            if worker["batch"] >= 2 and now - since >= BEFORE_KILL_S:
                os.kill(worker["pid"], signal.SIGKILL)
                self.story.kill = Kill(worker["worker"], worker["pid"], worker["batch"], ended)
                self._screen.say(
                    f"kill -9 {worker['pid']}: a worker with {worker['batch']} pages in its hands"
                )
                return

    def _final_records(self) -> None:
        story = self.story
        for job_id in story.job_ids:
            story.views[job_id] = self._client.get(job_id).view
        story.workers = self._client.workers()
        story.dead_letters = self._client.dead_letters(task=TASK)


def killed_in(story: Story, signal_name: str) -> list[str]:
    """The jobs whose worker process died by this signal while they ran, by the records."""
    return [job_id for job_id, view in story.views.items() if any(_ends_by(view, signal_name))]


def batch_mates(story: Story, job_id: str) -> list[str]:
    """Those that ran in the same process as `job_id` when it died, by the records: the same end in the
    same moment."""
    ends = {event["at"] for event in _ends_by(story.views[job_id], POISON_SIGNAL)}
    return [
        other
        for other, view in story.views.items()
        if other != job_id and any(event["at"] in ends for event in _ends_by(view, POISON_SIGNAL))
    ]


def _ends_by(view: dict[str, Any], signal_name: str) -> Iterator[dict[str, Any]]:
    for event in view["timeline"]:
        if signal_name in event.get("error", {}).get("message", ""):
            yield event
