"""Whatever is done in whatever order: the queue is what a list with a policy would be, and the accounts agree."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.buffer import Door, Enter, Refuse
from forebay.streams import Backoff
from tests.streams.queues import Queues, frame_of, settled

POLICIES = ["block", Backoff(), "drop_newest", "drop_oldest", "latest_only", "reject"]
STEPS = st.lists(st.sampled_from(["offer", "offer", "get", "release", "view", "forget"]), max_size=40)


class Model:
    """Frames in a list: the policy is asked, and done."""

    def __init__(self, policy, maxsize, slots, **marks):
        self.door = Door(policy, items_max=maxsize, **marks)
        self.waiting = deque()
        self.slots = slots
        self.served = self.dropped = 0

    def offer(self, value, busy):
        decision = self.door.decide(len(self.waiting))
        if isinstance(decision, Enter) and not decision.evict and len(self.waiting) + busy >= self.slots:
            decision = self.door.no_slot(decision.degraded)
            if isinstance(decision, Enter) and not self.waiting:
                decision = Refuse("no_slot")
        if not isinstance(decision, Enter):
            self.dropped += 1
            return False
        for _ in range(decision.evict):
            self.waiting.popleft()
            self.dropped += 1
        self.waiting.append(value)
        return True


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("marks", [{}, {"degrade_at": 0.4, "drop_at": 0.7}], ids=str)
@settings(max_examples=40)
@given(steps=STEPS, maxsize=st.integers(1, 5))
def test_a_queue_is_a_list_with_a_policy(policy, marks, steps, maxsize):
    queues = Queues()
    queue = queues(maxsize, policy=policy, held_max=2, **marks)
    model = Model(policy, maxsize, queue.slots, **marks)
    held, views = [], []
    try:
        for number, step in enumerate(steps):
            if step == "offer":
                went_in = model.offer(number % 250, len(held) + len(views))
                assert bool(queue.offer(frame_of(number % 250))) == went_in
            elif step == "get" and model.waiting:
                held.append(queue.get(timeout=10))
                assert held[-1].array.flat[0] == model.waiting.popleft()
            elif step == "release" and held:
                held.pop().release()
                model.served += 1
            elif step == "view" and held:
                frame = held.pop()
                views.append(frame.array[0])
                frame.release()
                model.served += 1
            elif step == "forget" and views:
                views.pop()
            counts = queue.counts()
            assert (counts.queued, queue.qsize()) == (len(model.waiting), len(model.waiting))
            assert (counts.held, counts.lingering) == (len(held), len(views))
            assert (counts.served, sum(counts.dropped.values())) == (model.served, model.dropped)
            assert settled(counts) == 0
            assert queue.slots_free() == queue.slots - len(model.waiting) - len(held) - len(views)
    finally:
        queues.close()
