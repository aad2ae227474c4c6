"""A Dispatcher with requests, driven by hand."""

import itertools

from forebay.core import answering
from forebay.core.entry import admit
from forebay.core.job import Job
from forebay.core.requests import RequestPolicy
from tests.sim.rig import Rig, a_spec

MODEL = dict(kind="class", batch_max=16)


class RequestRig(Rig):
    """`rig.ask()` brings a request; `rig.told` has what ended, by id."""

    def __init__(self, *specs, policy=None, **more):
        super().__init__(*(specs or (a_spec(**MODEL),)), **more)
        if policy is not None:
            for reservoir in self.d.hand.basin.reservoirs.values():
                reservoir.policy = policy
        self.told = {}
        self._requests = itertools.count(1)

    def learn_model(self, fixed_s=0.020, each_s=0.002, task="t"):
        for number in range(32):
            items = 1 + number % 16
            self.d.hand.tasks[task].fit.observe(items, fixed_s + each_s * items)
        return self

    def offer(self, task="t", *, deadline_s=0.2, tenant="", priority=5, payload=b"1", jitter=0.0):
        """Ask, and poll nothing; return the verdict."""
        job = Job(
            f"r{next(self._requests)}", task, payload, self.now, self.now, priority, 2, None,
            self.now + deadline_s, tenant,
        )  # fmt: skip
        verdict = admit(self.d.hand, job, now=self.now, jitter=jitter)
        self.note()
        return verdict

    def ask(self, *args, **more):
        """Ask and poll; return the verdict."""
        verdict = self.offer(*args, **more)
        self.poll()
        return verdict

    def poll(self, after=0.0):
        runs = super().poll(after)
        if hasattr(self, "told"):
            self.note()
        return runs

    def gone(self, request):
        answering.withdraw(self.d.hand, request)
        return self.poll()

    def note(self):
        for ended in self.d.hand.basin.take_ended():
            assert ended.request.job.id not in self.told, "answered twice"
            self.told[ended.request.job.id] = ended

    def ends(self):
        return {job_id: ended.end.value for job_id, ended in self.told.items()}


POLICY = RequestPolicy(requests_max=10, bytes_max=100)
