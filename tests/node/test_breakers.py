"""What a node keeps of the breakers of its processes is bounded, however they name them."""

from forebay.node.breakers import USES_MAX, InnerBreakers
from forebay.node.facts import NoFacts
from forebay.node.frames import BreakerReport, Breakers
from forebay.node.slot import Slot


class Clock:
    def now(self):
        return 1.0


def test_names_of_processes_that_are_gone_are_forgotten_and_those_that_are_there_are_not():
    slots = [Slot(number=n, name=f"w/lane/{n}", device="cpu", gpu=None) for n in range(2)]
    inner = InnerBreakers(lambda: [("lane", slot) for slot in slots], facts=NoFacts(), clock=Clock())

    def told(slot, name):
        inner.heard(slot, Breakers([BreakerReport(name, "closed", 0, 0.0, "", ("task",))]))

    told(slots[0], "stays")
    for process in range(3 * USES_MAX):
        slots[1].breakers.clear()  # the process before has died
        told(slots[1], f"of process {process}")
    assert len(inner._uses) <= USES_MAX
    shown = {one["breaker"]: one["tasks"] for slot in slots for one in inner.shown_of(slot)}
    assert shown == {"stays": ["task"], f"of process {3 * USES_MAX - 1}": ["task"]}
