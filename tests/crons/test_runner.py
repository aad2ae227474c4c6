"""The runner on a clock that is moved: restarts, two servers, clocks that jump, and what is skipped."""

import asyncio
import json
import random

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.core import settle
from forebay.core.crons import CronEntry
from forebay.core.job import JobError
from forebay.core.ledger import Ledger
from forebay.core.settle import SettlePolicy
from forebay.core.task import TaskSpec
from forebay.crons.runner import LOOK_S, REFUSED_WAIT_S, CronTerms, Runner
from forebay.observe.metrics import Exposition

T0 = 1_800_000_000.0  # a multiple of 600
TASKS = {"t": TaskSpec(name="t", priority=8, version="7")}


class Clock:
    """It stands until it is set."""

    def __init__(self, at=T0):
        self.at = at

    def now(self):
        return self.at

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        await asyncio.sleep(0)


class Log:
    def __init__(self):
        self.lines = []

    def info(self, event, **fields):
        self.lines.append((event, fields))

    warning = info

    def said(self, event):
        return [fields for name, fields in self.lines if name == event]


class World:
    """A store, and runners on it as often as a test starts one."""

    def __init__(self, *entries, jobs_max=100):
        self.entries = entries
        self.ledger = Ledger()
        self.clock = Clock()
        self.log = Log()
        self.meters = Exposition(TASKS, now=self.clock.now)
        self.bounds = {"t": (jobs_max, 1 << 20)}

    def runner(self, *entries, clock=None):
        """A server of its own on the one store."""
        broker = MemoryBroker(ledger=self.ledger)
        terms = CronTerms(tasks=TASKS, bounds=self.bounds, meters=self.meters, log=self.log)
        return Runner(entries or self.entries, broker, clock or self.clock, terms)

    async def until(self, runner, at):
        """Let time pass second by second, looking as often as the runner asks."""
        while self.clock.at < at:
            await runner.tick()
            self.clock.at = min(at, self.clock.at + 1.0)
        await runner.tick()

    def due(self):
        """When the jobs were due, in the order they were made, as seconds from T0."""
        jobs = sorted(self.ledger._shelf.jobs.values(), key=lambda entry: entry.job.id)
        return [round(seconds_of(json.loads(entry.job.metadata)["due_at"]) - T0) for entry in jobs]

    def outcomes(self):
        return {outcome: count for (_, outcome), count in self.meters.cron_turns.items()}

    def finish(self):
        """Complete every job that waits."""
        leases = self.ledger.lease("t", limit=100, lease_s=30, worker="w", now=self.clock.at)
        done = [settle.complete(lease, output=b"1", now=self.clock.at) for lease in leases]
        assert all(self.ledger.commit(done, now=self.clock.at))


def seconds_of(text):
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def an_entry(**fields):
    return CronEntry(**{"name": "e", "task": "t", "every_s": 600, **fields})


def run(test, *entries, **options):
    asyncio.run(test(World(*(entries or (an_entry(),)), **options)))


def test_each_due_instant_gets_one_job_with_what_the_entry_and_its_task_say():
    async def test(world):
        await world.until(world.runner(), T0 + 1_800)
        assert world.due() == [600, 1_200, 1_800]
        job = next(iter(world.ledger._shelf.jobs.values())).job
        assert (job.task, job.payload, job.priority, job.tenant, job.version) == ("t", b"[1]", 8, "x", "7")
        assert json.loads(job.metadata) == {"cron": "e", "due_at": "2027-01-15T08:10:00Z"}
        assert job.idempotency_key == "cron:e:2027-01-15T08:10:00Z"
        assert job.expires_at == job.run_at + TASKS["t"].ttl_s
        assert world.outcomes() == {"submitted": 3}
        assert [line["job_id"] for line in world.log.said("cron_submitted")][0] == job.id

    run(test, an_entry(payload=b"[1]", tenant="x"))


def test_nothing_was_missed_before_an_entry_was_first_seen():
    async def test(world):
        world.clock.at = T0 + 599
        await world.until(world.runner(), T0 + 600)
        assert world.due() == [600]

    run(test)


def test_a_restart_in_the_second_of_a_run_neither_repeats_nor_loses_it():
    async def test(world):
        for at in (T0, T0 + 599.9, T0 + 600, T0 + 600, T0 + 600.1, T0 + 601):
            world.clock.at = at
            await world.runner().tick()
        assert world.due() == [600]

    run(test)


@pytest.mark.parametrize(("missed", "expected"), [("once", [86_400]), ("skip", [])])
def test_what_nobody_was_there_for_runs_once_or_not(missed, expected):
    async def test(world):
        await world.runner().tick()
        world.clock.at = T0 + 86_400 + 61
        runner = world.runner()
        await runner.tick()
        await runner.tick()
        assert world.due() == expected
        await world.until(runner, T0 + 86_400 + 600)
        assert world.due() == [*expected, 87_000]
        assert [line["reason"] for line in world.log.said("cron_skipped")] == ["missed"] * (not expected)

    run(test, an_entry(missed=missed))


def test_the_record_of_the_last_run_may_be_long_gone():
    async def test(world):
        await world.until(world.runner(), T0 + 600)
        world.finish()
        world.ledger.purge(list(world.ledger._shelf.jobs), limit=10, now=world.clock.at)
        world.clock.at = T0 + 1_100
        await world.runner().tick()
        assert world.due() == []

    run(test)


def test_two_servers_make_one_job_of_a_due_instant():
    async def test(world):
        late = Clock(T0 + 0.5)  # their clocks differ
        one, two = world.runner(), world.runner(clock=late)
        for second in range(1_801):
            world.clock.at, late.at = T0 + second, T0 + second + 0.5
            await asyncio.gather(one.tick(), two.tick())
        assert world.due() == [600, 1_200, 1_800]

    run(test)


def test_two_servers_that_start_around_a_due_instant_lose_it_not():
    async def test(world):
        one, two = world.runner(), world.runner(clock=Clock(T0 + 600.2))
        world.clock.at = T0 + 599.8
        await one.tick()
        await two.tick()
        await two.tick()
        assert world.due() == [600]

    run(test)


def test_a_clock_that_is_set_back_runs_nothing_twice_and_one_that_leaps_runs_the_last_once():
    async def test(world):
        runner = world.runner()
        await world.until(runner, T0 + 1_200)
        world.clock.at = T0 + 300  # an hour back would be the same
        await world.until(runner, T0 + 1_799)
        assert world.due() == [600, 1_200]
        world.clock.at = T0 + 3_605
        await runner.tick()
        await runner.tick()
        assert world.due() == [600, 1_200, 3_600]

    run(test)


def test_a_mark_that_a_wrong_clock_left_ahead_is_said_and_cured_by_a_resume():
    async def test(world):
        world.clock.at = T0 + 366 * 86_400
        await world.runner().tick()
        world.ledger._now = 0.0  # the machine has the right time again, and so has the store
        world.clock.at = T0
        runner = world.runner()
        await world.until(runner, T0 + 600)
        assert world.due() == []
        (said,) = world.log.said("cron_mark_ahead")
        assert said["cron"] == "e" and "forebay crons resume e" in said["hint"]
        world.ledger.crons.steer("e", paused=False, now=world.clock.at)
        await world.until(runner, T0 + 1_200)
        assert world.due() == [1_200]

    run(test)


def test_without_overlap_a_run_is_skipped_while_the_last_one_is_open():
    async def test(world):
        runner = world.runner()
        await world.until(runner, T0 + 1_200)
        assert world.due() == [600]
        assert [line["reason"] for line in world.log.said("cron_skipped")] == ["overlap"]
        world.finish()
        await world.until(runner, T0 + 1_800)
        assert world.due() == [600, 1_800]
        assert world.outcomes() == {"submitted": 2, "overlap": 1}

    run(test, an_entry(overlap=False))


def test_what_is_due_in_a_pause_is_not_made_up_for():
    async def test(world):
        runner = world.runner()
        await world.until(runner, T0 + 600)
        world.ledger.crons.steer("e", paused=True, now=world.clock.at)
        await world.until(runner, T0 + 1_500)
        world.ledger.crons.steer("e", paused=False, now=world.clock.at)
        await world.until(runner, T0 + 1_800)
        assert world.due() == [600, 1_800]

    run(test)


def test_a_pause_survives_a_restart():
    async def test(world):
        await world.runner().tick()
        world.ledger.crons.steer("e", paused=True, now=world.clock.at)
        await world.until(world.runner(), T0 + 1_200)
        assert world.due() == []

    run(test)


def test_a_deploy_that_moves_the_time_of_day_makes_up_for_nothing():
    async def test(world):
        at_nine = an_entry(every_s=None, cron="0 9 * * *")  # T0 is 08:00
        await world.runner(an_entry(every_s=None, cron="0 7 * * *")).tick()
        world.clock.at = T0 + 2 * 3_600
        runner = world.runner(at_nine)
        await world.until(runner, T0 + 2 * 3_600 + 5)
        assert world.due() == []
        world.clock.at = T0 + 25 * 3_600
        await runner.tick()
        assert world.due() == [25 * 3_600]

    run(test)


def test_two_versions_of_an_entry_side_by_side_lose_no_run():
    async def test(world):
        old, new = world.runner(an_entry()), world.runner(an_entry(every_s=300))
        for second in range(0, 1_201, 1):
            world.clock.at = T0 + second
            await old.tick()
            await new.tick()
        assert world.due() == [300, 600, 900, 1_200]

    run(test)


def test_a_full_queue_puts_a_run_off_until_there_is_room():
    async def test(world):
        runner = world.runner()
        await world.until(runner, T0 + 600)
        await world.until(runner, T0 + 1_205)
        assert world.due() == [600]
        assert [line["reason"] for line in world.log.said("cron_refused")] == ["queue_full"]
        world.finish()
        await world.until(runner, T0 + 1_210 + REFUSED_WAIT_S)
        assert world.due() == [600, 1_200]

    run(test, jobs_max=1)


def test_a_payload_in_quarantine_is_not_run_until_it_is_released():
    async def test(world):
        runner = world.runner()
        await world.until(runner, T0 + 600)
        (lease,) = world.ledger.lease("t", limit=9, lease_s=30, worker="w", now=world.clock.at)
        policy = SettlePolicy(deaths_max=1, quarantine_deaths=1)
        lost = JobError("worker_lost", "SIGSEGV", "signal", 1)
        death = settle.die(lease, error=lost, policy=policy, now=world.clock.at, jitter=0.0)
        assert world.ledger.commit([death], now=world.clock.at) == [True]
        await world.until(runner, T0 + 1_205)
        assert world.due() == [600]
        assert [line["reason"] for line in world.log.said("cron_refused")] == ["quarantined"]
        (held,) = world.ledger.quarantine.listed(limit=9, now=world.clock.at)
        world.ledger.quarantine.release(held.fingerprint, tenant=None, now=world.clock.at)
        await world.until(runner, T0 + 1_210 + REFUSED_WAIT_S)
        assert world.due() == [600, 1_200]

    run(test)


def test_a_draining_queue_gets_no_job():
    async def test(world):
        runner = world.runner()
        world.ledger.drain("t", draining=True, now=T0)
        await world.until(runner, T0 + 610)
        assert world.due() == []
        world.ledger.drain("t", draining=False, now=world.clock.at)
        await world.until(runner, T0 + 620)
        assert world.due() == [600]

    run(test)


def test_a_key_that_somebody_took_is_said_and_the_entry_goes_on():
    async def test(world):
        runner = world.runner()
        await runner.tick()
        taken = runner._job(an_entry(), T0 + 600, T0)._replace(body_hash=b"other")
        world.ledger.enqueue([taken], now=T0)
        await world.until(runner, T0 + 1_200)
        (said,) = world.log.said("cron_key_taken")
        assert said["job_id"] == taken.id
        assert world.due() == [600, 1_200]
        assert world.outcomes() == {"conflict": 1, "submitted": 1}

    run(test)


def test_the_runner_asks_to_be_woken_for_what_is_due_and_looks_for_pauses_meanwhile():
    async def test(world):
        runner = world.runner()
        assert await runner.tick() == LOOK_S
        world.clock.at = T0 + 599.75
        assert await runner.tick() == 0.25

    run(test)


def test_each_run_is_counted_by_what_became_of_it():
    async def test(world):
        await world.until(world.runner(), T0 + 600)
        text, _ = world.meters.render()
        assert b'inference_cron_runs_total{cron="e",outcome="submitted"} 1.0' in text
        assert b'inference_admission_total{decision="accepted"' in text

    run(test)


def test_trouble_of_any_kind_is_said_and_the_next_look_comes():
    async def test(world):
        runner = world.runner()
        await runner.tick()
        marks, failed = runner._broker.crons.marks, []

        async def broken():
            if failed:
                return await marks()
            failed.append(1)
            raise ZeroDivisionError("odd")

        runner._broker.crons.marks = broken
        world.clock.at = T0 + 600
        runner.start()
        async with asyncio.timeout(10):
            while not world.due():
                await asyncio.sleep(0)
        await runner.close()
        assert [line["error"] for line in world.log.said("crons_not_looked_at")] == ["ZeroDivisionError: odd"]

    run(test)


def test_five_servers_of_which_any_may_stand_still_make_sixty_jobs_of_sixty_seconds():
    async def test(world):
        chance = random.Random(109)
        servers = [world.runner() for _ in range(5)]
        for second in range(61):
            awake = chance.sample(servers, chance.randint(1, 5))
            for moment in (0.0, 0.3, 0.6):
                world.clock.at = T0 + second + moment
                await asyncio.gather(*(server.tick() for server in awake))
            if chance.random() < 0.2:
                servers[chance.randrange(5)] = world.runner()  # killed, and started again
        assert world.due() == list(range(1, 61))

    run(test, an_entry(every_s=1))


def test_what_is_no_longer_declared_is_forgotten_in_time():
    async def run():
        one, two, held = (CronEntry(name=name, task="t", every_s=600) for name in ("one", "two", "held"))
        yearly = CronEntry(name="yearly", task="t", cron="0 0 1 1 *")
        world = World(one, two, held, yearly)
        before = world.runner()
        await world.until(before, T0 + 1)
        await MemoryBroker(ledger=world.ledger).crons.steer("held", paused=True, now=world.clock.at)

        async def marks(at, *entries):
            world.clock.at = at
            runner = world.runner(*entries)
            runner.start()
            try:
                async with asyncio.timeout(10):
                    while not (runner._task.done() or runner._begun):
                        await asyncio.sleep(0)
            finally:
                await runner.close()
            return [mark.name for mark in world.ledger.crons.marks()]

        month = 30 * 86_400.0
        assert await marks(T0 + month - 1, one, yearly) == ["held", "one", "two", "yearly"]
        assert await marks(T0 + month + 2, one, yearly) == ["held", "one", "yearly"]
        assert world.log.said("cron_marks_forgotten") == [{"crons": ["two"]}]
        world.entries = ()
        assert await marks(T0 + 3 * month) == ["held"], "also where no entry is left"

    asyncio.run(run())
