"""Estimator: everything measured of one task -> when jobs end, how fast they drain, how true that is."""

from collections.abc import Sequence

from forebay.core.estimator.calibration import Coverage, Stage
from forebay.core.estimator.crew import Crew, start_after
from forebay.core.estimator.eta import Eta
from forebay.core.estimator.pending import Pending
from forebay.core.estimator.service import FEW_VARIANCE, Facts, Services
from forebay.core.estimator.traffic import Arrivals, Drain
from forebay.core.job import PRIORITY_NORMAL
from forebay.core.replicas import Replica
from forebay.core.task import TaskSpec

DRAINED_SURE = 20  # jobs from which a counted drain is believed
LOOK_SHARE = 0.01  # of a run: so old a look at the replicas may be
LOOK_MIN_S, LOOK_MAX_S = 0.005, 0.1
MEMO_MAX = 256  # estimates kept within one look
OFFSETS_MAX = 64  # replicas, or concurrent calls, looked at one by one
SCALE_FLOOR = 0.01  # of the middle
SCALE_FLOOR_S = 0.0005
AGAIN_GAIN = 0.02  # of one settled attempt in the share that is tried again
AGAIN_MAX = 0.9
FEW_RUNS = 16  # below so many the doubt of a run itself is added
MATES_SHARE = 0.6  # of what a full batch takes more
LATE = 1.2816  # standard normal quantile of 0.9
WAVE_FEW, WAVE_SOME = 2.0, 16.0  # runs ahead of one replica: the bounds of the stages

NEXT, SOON, LATER, FAR, RUNNING = range(5)
STAGES = 5
LIVE = 3 * STAGES  # added to the stage of what is told of a job that has waited already


class Estimator:
    """One task's measured facts: the node feeds it, the server reads it. All times are seconds."""

    def __init__(self, *, task: str = "", batch_max: int = 1, concurrency: int = 1) -> None:
        self.task = task
        self.batch_max = batch_max
        self.services = Services(batch_max=batch_max, concurrency=concurrency)
        self.service = self.services.now
        self.arrivals = Arrivals()
        self.drain = Drain()
        self.coverage = Coverage()  # of what was told at submit
        self.live_coverage = Coverage()  # of what was told later
        self.crew = Crew()
        self._slots = concurrency
        self._again = 0.0  # share of ended attempts that are tried again
        self._stages: dict[int, Stage] = {}
        self._told = Pending()
        self._told_live = Pending()
        self._offsets: list[float] = []
        self._seen: Facts | None = None  # what the service was known to be at the last look
        self._memo: dict[tuple[int, int, int, bool, int], Eta] = {}
        self._held = 0
        self._rivals = 0
        self._looked_at = 0.0
        self._look_until = float("-inf")
        self._looked_changes = -1

    @classmethod
    def of(cls, spec: TaskSpec) -> "Estimator":
        """Return the estimator of a task that measured nothing yet."""
        return cls(task=spec.name, batch_max=spec.batch_max, concurrency=spec.concurrency)

    @property
    def replicas(self) -> int:
        """Replicas that are ready now, on all nodes."""
        return self.crew.serving(self.task)

    # -- what happens --------------------------------------------------------------------------------

    def ran(self, *, items: int, took_s: float, size_b: int = 0, level: int = 0) -> None:
        """Take in one run: `items` jobs kept one replica busy for `took_s` at this level of the task."""
        self.service = self.services.observe(level, items, took_s, size_b)

    def settled(self, *, final: int, again: int = 0, now: float) -> None:
        """Take in ended attempts: `final` of them ended their job, `again` are to be tried once more."""
        if final:
            self.drain.count(final, now=now)
        if again or self._again > 1e-4:
            share = again / (final + again)
            self._again += (1.0 - (1.0 - AGAIN_GAIN) ** (final + again)) * (share - self._again)

    def arrived(self, priority: int, count: int, *, now: float) -> None:
        """Take in submissions that were accepted."""
        self.arrivals.count(priority, count, now=now)

    # -- telling and scoring ---------------------------------------------------------------------------

    def told(self, job_id: str, eta: Eta, *, now: float, live: bool = False) -> None:
        """Remember what was told of a job, to be scored when it ends. A sample is kept."""
        if eta.stage < 0:
            return
        if not live:
            self._told.offer(job_id, eta, now=now)
        elif job_id not in self._told_live:
            self._told_live.offer(job_id, eta, now=now)

    def ended(self, job_ids: Sequence[str], *, now: float) -> list[float]:
        """Score what was told of these jobs; return true minus p50 (seconds) of what was told at submit."""
        errors: list[float] = []
        if self._told_live:
            for told in self._told_live.take(job_ids):
                self._score(told.eta, now - told.at, self.live_coverage)
        if self._told:
            for told in self._told.take(job_ids):
                true_s = now - told.at
                self._score(told.eta, true_s, self.coverage)
                errors.append(true_s - told.eta.p50_s)
        return errors

    def forget(self, job_ids: Sequence[str]) -> None:
        """These were cancelled or expired: no estimate of service could have hit that."""
        self._told.take(job_ids)
        self._told_live.take(job_ids)

    @property
    def scoring(self) -> bool:
        """Whether any prediction waits for its truth."""
        return bool(self._told) or bool(self._told_live)

    # -- answers ---------------------------------------------------------------------------------------

    def eta(
        self,
        *,
        position: int,
        now: float,
        running: int = 0,
        priority: int = PRIORITY_NORMAL,
        size_b: int = 0,
        live: bool = False,
    ) -> Eta | None:
        """Return the estimate for the waiting job at `position` (1 is next), None when nothing was measured.

        `running` counts for the replicas that cannot be seen. `live`: it has waited already; such jobs
        err in another way than fresh ones and have a calibration of their own.
        """
        service, crew = self.service, self.crew
        if (
            now >= self._look_until
            or service.latest is not self._seen
            or crew.changes != self._looked_changes
            or now < self._looked_at
        ):
            if service.facts() is None:
                return None
            self._look(now)
        facts = self._seen
        assert facts is not None
        # At high rates many ask within one look, most of them at few places in line.
        key = (position, priority, size_b.bit_length() if facts.classes else 0, live, running)
        eta = self._memo.get(key)
        if eta is None:
            if len(self._memo) >= MEMO_MAX:
                self._memo.clear()
            seen = crew.known and not crew.unseen(self.task)
            offsets = (self._offsets or [0.0]) if seen else self._guessed(facts, running)
            group = self._urgency(priority) + LIVE * live
            eta = self._memo[key] = self._compute(facts, offsets, position, priority, size_b, group)
        return eta

    def rest(self, *, ran_s: float, size_b: int = 0, priority: int = PRIORITY_NORMAL) -> Eta | None:
        """Return the estimate for a job that has run for `ran_s`, None when nothing was measured."""
        facts = self.service.facts()
        if facts is None:
            return None
        unit_s = max(1e-9, self.service.run_s(max(1, round(facts.size))) * facts.factor(size_b))
        middle, late = facts.rest(ran_s / unit_s)
        scale_s = max((late - middle) * unit_s / LATE, SCALE_FLOOR * unit_s + SCALE_FLOOR_S)
        return self._calibrated(middle * unit_s, scale_s, 0.0, RUNNING + self._urgency(priority))

    def service_s(self) -> tuple[float, float] | None:
        """Return the median and the 0.9 quantile of one run in seconds, None when nothing was measured."""
        facts = self.service.facts()
        if facts is None:
            return None
        run_s = self.service.mean_s() or 0.0
        return run_s * facts.ratio50, run_s * facts.ratio90

    def capacity_per_s(self) -> float | None:
        """Return jobs per second the ready replicas can do at the measured service, None if unmeasured."""
        facts, replicas = self.service.facts(), self.replicas
        return replicas * self._slots / max(facts.item_s, 1e-6) if facts and replicas > 0 else None

    def drain_per_s(self, *, now: float) -> float | None:
        """Return jobs leaving per second: over the last 30 s, else what the replicas could do.

        None when nothing was measured. A handful of jobs says little about a rate, so what the replicas can
        do at the measured service goes before it.
        """
        total, measured = self.drain.total(now=now)
        possible = self.capacity_per_s()
        if possible is not None:
            possible *= self.crew.jobs_share(now)
        if possible is not None and (total < DRAINED_SURE or possible > measured):
            return possible
        return measured if total else None

    def measured_drain_per_s(self, *, now: float) -> float:
        """Return jobs that left per second over the last 30 s: what was, not what could be."""
        return self.drain.total(now=now)[1]

    # -- inside ----------------------------------------------------------------------------------------

    def _compute(
        self, facts: Facts, offsets: list[float], position: int, priority: int, size_b: int, group: int
    ) -> Eta:
        """Return the estimate for a job at a place in line; `group` is the first of its stages."""
        ahead = max(0, position - 1) + self._held
        slots = len(offsets)
        each_s = facts.item_s / slots
        batches = ahead // self.batch_max if self.batch_max > 1 else ahead
        full_s = facts.full_s * (1.0 + self._rivals)
        if offsets[-1] - offsets[0] < full_s:  # they take turns
            wait_s = batches // slots * full_s + offsets[batches % slots]
        else:
            wait_s = start_after(offsets, batches, full_s)
        if self._again and ahead >= slots:
            wait_s /= 1.0 - min(AGAIN_MAX, self._again)
        wait_s = offsets[0] + self.crew.beside_requests(wait_s - offsets[0], full_s)
        overtakers = 0.0  # variance of their number
        arrivals = self.arrivals
        if arrivals.mixed and priority and wait_s:
            extra, overtakers = arrivals.overtaking(priority, wait_s=wait_s, item_s=each_s)
            wait_s += extra * each_s
        items = 1.0
        if self.batch_max > 1:
            items = min(self.batch_max, ahead % self.batch_max + 1 + arrivals.total_per_s * wait_s)
        run_s = facts.single_s if items == 1.0 else self.service.run_s(round(items))
        if facts.classes:
            run_s *= facts.factor(size_b)
        own_s = run_s * facts.ratio50
        own_late_s = run_s * (facts.ratio90 - facts.ratio50) / LATE
        variance = own_late_s * own_late_s
        if facts.runs < FEW_RUNS:  # little is known of one run, and nothing of who will share it
            mates_s = MATES_SHARE * max(0.0, facts.full_s - run_s)
            variance += run_s * run_s * FEW_VARIANCE / facts.runs + mates_s * mates_s
        if wait_s:
            # How the draws ahead fall, what their mean really is, and how many will overtake.
            drawn = wait_s * facts.full_s / slots * facts.variance
            doubt = wait_s * wait_s * facts.doubt
            overtaken = overtakers * each_s * each_s
            variance += drawn + doubt + overtaken
        middle_s = wait_s + own_s
        scale_s = variance**0.5 + SCALE_FLOOR * middle_s + SCALE_FLOOR_S
        waves = wait_s / max(facts.full_s, 1e-9)
        stage = NEXT if waves == 0 else SOON if waves < WAVE_FEW else LATER if waves < WAVE_SOME else FAR
        return self._calibrated(middle_s, scale_s, wait_s, stage + group)

    def _calibrated(self, middle_s: float, scale_s: float, wait_s: float, stage: int) -> Eta:
        entry = self._stages.get(stage)
        if entry is None:
            entry = self._stages[stage] = Stage()
        p50_s = middle_s + entry.early * scale_s
        p90_s = middle_s + entry.late * scale_s
        if p50_s < 0.0:
            p50_s = 0.0
        if p90_s < p50_s:
            p90_s = p50_s
        starts_s = wait_s + (p50_s - middle_s if wait_s else 0.0)
        return Eta(p50_s, p90_s, max(0.0, starts_s), middle_s, scale_s, stage)

    def _urgency(self, priority: int) -> int:
        """Return the first stage of an urgency: where it differs, each side of normal has its own."""
        if not self.arrivals.mixed or priority == PRIORITY_NORMAL:
            return 0
        return STAGES if priority < PRIORITY_NORMAL else 2 * STAGES

    def _score(self, eta: Eta, true_s: float, coverage: Coverage) -> None:
        by_p50, by_p90 = true_s <= eta.p50_s, true_s <= eta.p90_s
        self._stages[eta.stage].score((true_s - eta.middle_s) / eta.scale_s, by_p50=by_p50, by_p90=by_p90)
        self._memo.clear()
        coverage.add(by_p50=by_p50, by_p90=by_p90)

    def _guessed(self, facts: Facts, running: int) -> list[float]:
        """Return when replicas get free; of those known by number alone half of each run is to come."""
        near, crew = self._offsets, self.crew
        slots = max(not near, min(OFFSETS_MAX - len(near), crew.unseen(self.task) * self._slots))
        busy = min(slots, -(-max(0, running - crew.in_hand(self.task)) // self.batch_max))
        return sorted([*near, *[0.0] * (slots - busy), *[0.5 * facts.full_s] * busy])

    def _look(self, now: float) -> None:
        """Look at what each replica does; as good as new for a hundredth of a run."""
        facts = self._seen = self.service.latest
        assert facts is not None
        self._memo.clear()
        self.arrivals.roll(now)
        crew = self.crew
        self._looked_at = now
        self._looked_changes = crew.changes
        self._look_until = now + min(LOOK_MAX_S, max(LOOK_MIN_S, LOOK_SHARE * facts.full_s))
        if not crew.known:
            return
        offsets: list[float] = []
        for replica in crew.replicas():
            if len(offsets) >= OFFSETS_MAX:
                break
            if self._slots > 1:
                busy = min(self._slots, replica.unfinished())
                offsets += [0.0] * (self._slots - busy) + [0.5 * facts.full_s] * busy
            else:
                offsets.append(self._free_in(replica, facts, now))
        offsets += crew.loading(now)
        self._offsets = sorted(offsets)
        self._held, self._rivals = crew.waiting(self.task, now)

    def _free_in(self, replica: Replica, facts: Facts, now: float) -> float:
        """Return in how many seconds a replica has done all it was sent."""
        head, left_s = replica.head(), 0.0
        if head is None:
            return 0.0
        ran_s = max(0.0, now - replica.since)
        for run in replica.runs:
            if run.parallel:
                continue
            items = len(run.items) if run.singles else run.size
            if run is not head:
                left_s += self.crew.expected_s(run, items)
                continue
            if run.singles and items > 1:
                left_s += self.crew.expected_s(run, items - 1)
                items = 1
            unit_s = self.crew.expected_s(run, items)
            if run.task == self.task and unit_s > 0:
                left_s += facts.rest(ran_s / unit_s)[0] * unit_s
            else:
                left_s += max(0.0, unit_s - ran_s)
        return left_s
