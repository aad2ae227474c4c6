"""What the door says of variants: which there are, which runs, and by which a result was made."""

from dataclasses import replace

from forebay.core import settle
from forebay.core.variants import LadderPolicy, Rung
from tests.server.doors import call, lease

LADDER = LadderPolicy(rungs=(Rung(name="medium", quality=0.96), Rung(name="small", enter=0.9)))


def test_a_task_says_which_variants_it_has_and_which_runs_now():
    async def run(caller):
        front = caller.front
        front.tasks["echo"] = replace(front.tasks["echo"], ladder=LADDER)
        front.node.levels["echo"] = 2
        seen = (await caller.get("/v1/tasks/echo")).json()
        assert seen["level"] == 2
        assert seen["variants"] == [
            {"level": 1, "name": "medium", "quality": 0.96, "enter": 0.75, "leave": 0.5},
            {"level": 2, "name": "small", "quality": None, "enter": 0.9, "leave": 0.5},
        ]
        plain = (await caller.get("/v1/tasks/Clip")).json()
        assert (plain["level"], plain["variants"]) == (0, [])

    call(run)


def test_a_job_that_a_variant_did_says_so_in_its_view_its_timeline_and_at_its_result():
    async def run(caller):
        ids = {}
        for level in (0, 2):
            await caller.one()
            (held,) = await lease(caller.front)
            now = caller.front.clock.now()
            done = settle.complete(held, output=b'"x"', now=now)._replace(degraded=level)
            assert await caller.front.broker.commit([done], now=now) == [True]
            ids[level] = held.job.id
        job = (await caller.get(f"/v1/jobs/{ids[2]}")).json()
        assert job["degraded"] == "variant_2"
        assert job["timeline"][-1]["event"] == "succeeded" and job["timeline"][-1]["degraded"] == "variant_2"
        answer = await caller.get(f"/v1/jobs/{ids[2]}/result")
        assert (answer.headers["forebay-level"], answer.headers["forebay-degraded"]) == ("2", "variant_2")
        whole = await caller.get(f"/v1/jobs/{ids[0]}/result")
        assert whole.headers["forebay-level"] == "0" and "forebay-degraded" not in whole.headers
        job = (await caller.get(f"/v1/jobs/{ids[0]}")).json()
        assert job["degraded"] is None and "degraded" not in job["timeline"][-1]

    call(run)
