"""What a node sees of its replicas and of itself: which child is one too many, and whether it is idle."""

import asyncio
from types import SimpleNamespace

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.core.job import Job, JobError
from forebay.core.scaling import ScalePolicy
from forebay.core.task import TaskSpec
from forebay.node.facts import NoFacts
from forebay.node.lane import Lane
from forebay.node.neighbours import Neighbours, NodeTold, Recorded
from forebay.node.presence import Presence
from forebay.node.scaling import room_for, scaling_of
from forebay.node.slot import Slot
from forebay.observe.lanes import LaneMeters
from forebay.observe.meters import Meters


class Clock:
    at = 1_000.0

    def now(self):
        return self.at

    def random(self):
        return 0.5


class Child:
    """A child that takes what it is given and never ends."""

    def run(self, run, task, items, *, singles, level=0):
        pass

    def stop(self):
        pass


class Facts(NoFacts):
    def __init__(self):
        self.changes = []

    def scaled(self, task, replicas, was=None, reason=""):
        self.changes.append((task, replicas, was, reason))


class Set:
    """A lane with some replicas, each ready unless told otherwise, on a memory engine."""

    def __init__(self, slots, *, clock=None, ready=True, **spec):
        self.clock, self.broker, self.facts = clock or Clock(), MemoryBroker(), Facts()
        self.spec = TaskSpec(**{"name": "t", "kind": "class", "replicas": 4, "replicas_least": 1} | spec)
        self.lane = Lane([self.spec], broker=self.broker, clock=self.clock, worker="w", facts=self.facts)
        self.scaling = scaling_of(
            self.lane, self.spec, ScalePolicy(short_s=0.0), broker=self.broker, clock=self.clock
        )
        self.slots = [Slot(number=n, name=f"w/t/{n}", device="cpu", gpu=None) for n in range(slots)]
        for slot in self.slots if ready else ():
            slot.state = "ready"
            self.lane.child_ready(slot.number, Child())

    async def put(self, count):
        jobs = [
            Job(id=f"j{n}", task="t", payload=b"1", created_at=self.clock.at, run_at=self.clock.at)
            for n in range(count)
        ]
        await self.broker.enqueue(jobs, now=self.clock.at)
        for _ in range(20):
            await asyncio.sleep(0)
        self.lane.knock("t")
        for _ in range(20):
            await asyncio.sleep(0)

    def busy(self):
        return [slot.number for slot in self.slots if self.lane.in_hand(slot.number)]

    def to_end(self):
        return [slot.number for slot in self.scaling.to_end(self.slots)]


def test_only_a_range_is_watched():
    assert scaling_of(None, None, ScalePolicy(), broker=None, clock=None) is None
    fixed = TaskSpec(name="t", kind="class", replicas=4)
    assert scaling_of(None, fixed, ScalePolicy(), broker=None, clock=None) is None


def test_idle_children_end_and_busy_ones_do_not():
    async def run():
        of = Set(4)
        await of.put(2)
        assert len(of.busy()) == 2
        assert sorted(of.to_end() + of.busy()) == [0, 1, 2, 3], "one is enough: two are idle, two are busy"
        await of.lane.close()

    asyncio.run(run())


def test_children_that_serve_nobody_yet_end_before_those_that_are_idle():
    async def run():
        of = Set(3)
        of.slots[0].state = "crash_loop"
        assert of.to_end() == [0, 2]
        of.slots[2].parked = True
        assert of.to_end() == [0], "one with none is not counted"
        of.slots[0].parked = True
        assert of.to_end() == []
        await of.lane.close()

    asyncio.run(run())


def test_where_calls_run_beside_each_other_the_one_with_the_fewest_ends():
    async def run():
        of = Set(2, concurrency=4)
        await of.put(7)
        fewest = min(of.slots, key=lambda slot: of.lane.in_hand(slot.number)).number
        assert len(of.busy()) == 2
        assert of.to_end() == [fewest]
        await of.lane.close()

    asyncio.run(run())


def test_what_waits_starts_another_and_what_waits_in_a_paused_queue_does_not():
    async def run(paused):
        of = Set(1)
        await of.put(5)
        await of.broker.pause("t", paused=paused, now=of.clock.at)
        for _ in range(8):
            of.clock.at += 1.0
            of.scaling.look(of.slots)
        await of.lane.close()
        return of.scaling.replicas, of.facts.changes[1:]

    assert asyncio.run(run(paused=True)) == (1, [])
    replicas, changes = asyncio.run(run(paused=False))
    assert replicas == 2
    assert changes == [("t", 2, 1, "all 1 are busy, 4 wait")]


def test_a_child_in_a_crash_loop_does_not_keep_the_others_from_growing():
    async def run():
        of = Set(2)
        of.scaling._scaler.replicas = 2
        of.lane.child_died(1, JobError("worker_lost", "its device is gone"))
        of.slots[1].state = "crash_loop"
        await of.put(5)
        for _ in range(8):
            of.clock.at += 1.0
            of.scaling.look(of.slots)
        await of.lane.close()
        return of.scaling.replicas

    assert asyncio.run(run()) > 2


def test_a_request_that_was_refused_counts_for_one_look():
    async def run():
        of = Set(1)
        await of.put(1)
        of.clock.at += 1.0
        of.lane.dispatcher.hand.basin.refused_at["t"] = of.clock.at
        of.scaling.look(of.slots)
        grown = of.scaling.replicas
        of.slots.append(Slot(number=9, name="w/t/9", device="cpu", gpu=None, state="ready"))
        of.lane.child_ready(9, Child())
        of.clock.at += 1.0
        of.scaling.look(of.slots)
        await of.lane.close()
        return grown, of.scaling.replicas

    assert asyncio.run(run()) == (2, 2)


@pytest.mark.parametrize(
    ("sizes", "free_b", "room"),
    [([], 10**9, None), ([0], 10**9, None), ([100, 300], 990, 3), ([100, 300], 329, 0), ([1], 0, 0)],
)
def test_there_is_room_for_as_many_more_as_the_largest_goes_into_what_is_free(sizes, free_b, room):
    def slot(size_b):
        replica = SimpleNamespace(memory_b=lambda: size_b)
        return Slot(number=0, name="w/t/0", device="cpu", gpu=None, state="ready", replica=replica)

    loading = SimpleNamespace(replica=SimpleNamespace(memory_b=lambda: 10**12), state="starting")
    parked = SimpleNamespace(replica=None, state="parked")
    assert room_for([parked, loading, *map(slot, sizes)], lambda: free_b) == room


def test_that_more_cannot_be_had_is_logged_and_counted_and_changes_no_number():
    lines, meters = [], Meters(["t"])
    log = SimpleNamespace(warning=lambda event, **facts: lines.append((event, facts["reason"])))
    facts = LaneMeters(meters, log)
    facts.scaled("t", 1)
    facts.scaled("t", 1, 1, "no room")
    assert lines == [("replicas_short", "no room")]
    assert (meters.replicas, meters.bounds) == ({"t": 1}, {"REPLICAS_ROOM": 1})
    assert set(meters.replica_changes.values()) == {0}


# -- a node of itself ------------------------------------------------------------------------------------


class Own:
    def __init__(self):
        self.batch = 0

    def workers(self):
        return [{"worker": "w/t/0", "state": "ready", "batch": self.batch}, {"state": "parked", "batch": 0}]

    def ready(self, task):
        return 1

    def level(self, task):
        return 0

    def breaker(self, task):
        return None

    def unready_reason(self):
        return None


def told_by(node, clock, estimators=None, *, draining=False):
    return Presence(node, estimators or {}, clock, SimpleNamespace(draining=draining))


def test_a_node_is_idle_since_it_last_held_or_ran_anything_however_short_that_was():
    clock, node, estimator = Clock(), Own(), Recorded(task="t")
    presence = told_by(node, clock, {"t": estimator})
    clock.at += 30.0
    assert presence.told().idle_s == 30.0, "nothing ran since it started"
    node.batch = 2
    assert presence.told().idle_s == 0.0
    node.batch = 0
    clock.at += 5.0
    assert presence.told().idle_s == 5.0
    estimator.ran(items=1, took_s=0.001)  # began and ended between two looks
    clock.at += 5.0
    assert presence.told().idle_s == 0.0


def test_nodes_are_shown_in_the_order_in_which_they_should_go():
    clock, node = Clock(), Own()
    node.batch = 1
    near = Neighbours(None, clock, name="own", describe=told_by(node, clock).told)

    def other(batch, idle_s=0.0, draining=False, state="ready"):
        return NodeTold([{"state": state, "batch": batch}], {}, idle_s=idle_s, draining=draining)

    near.others = {
        "full": other(9),
        "long": other(0, 500.0),
        "short": other(0, 2.0),
        "new": other(0, 9.0, state="starting"),
        "ends": other(4, draining=True),
    }
    shown = near.nodes()
    assert [(one["node"], one["state"], one["deletion_cost"]) for one in shown] == [
        ("ends", "draining", 4),
        ("long", "idle", -500),
        ("new", "starting", -9),
        ("short", "idle", -2),
        ("own", "busy", 1),
        ("full", "busy", 9),
    ]
    own = next(one for one in shown if one["node"] == "own")
    assert (own["replicas"], own["ready"], own["in_hand"]) == (1, 1, 1), "a parked place is no replica"


def test_a_door_without_a_node_shows_those_of_others_alone():
    near = Neighbours(None, Clock(), name="door", describe=None)
    assert near.nodes() == []
    near.others = {"of an older version": NodeTold([{"worker": "w"}])}
    (old,) = near.nodes()
    assert (old["state"], old["in_hand"], old["host"]) == ("starting", 0, "")
