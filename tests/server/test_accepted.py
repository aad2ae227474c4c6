"""The answer to a submission is the same text whichever way it is written."""

import json

import pytest

from forebay.core.estimator import Eta
from forebay.core.job import Job, JobRecord, Standing
from forebay.core.lifecycle import State
from forebay.server.render import accepted_json, job_json

NOW = 1_764_517_000.000_125
PLAIN = Job("019ad5e3-1234-7000-8000-000012345678", "ocr", b'{"url":"a"}', NOW, NOW)
ETA = Eta(0.0123, 71.9, 0.001, 0.012, 0.002, 1)


@pytest.mark.parametrize("eta", [None, ETA])
@pytest.mark.parametrize(
    "job",
    [
        PLAIN,
        PLAIN._replace(expires_at=NOW + 86_400.0, deadline_at=NOW + 60.25, attempts_max=7),
        PLAIN._replace(priority=2, metadata='{"who":"Ærø"}'.encode(), version="3", tenant="a"),
        PLAIN._replace(priority=7, ordering_key='a "key"', idempotency_key="k", body_hash=b"h"),
        PLAIN._replace(redriven_from=PLAIN.id, callback_url="https://example.org/told", cache_s=5.0),
    ],
)
def test_a_job_that_was_just_accepted_is_told_as_any_other_job(job, eta):
    """Every field of the short way is what the long way says of the same job."""
    record = JobRecord(job, Standing(State.QUEUED, ready_at=job.run_at))
    short = accepted_json(job, now=NOW + 0.01, position=3, eta=eta)
    assert short == job_json(record, now=NOW + 0.01, position=3, eta=eta)
    assert json.loads(short)["status"] == "PENDING"
