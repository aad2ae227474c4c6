"""What is wrong in a body that is no submission is told with the path of its field."""

import pytest

from tests.server.doors import call

BODIES = [
    ("/v1/queues/echo/announce", {}, "jobs", "is required"),
    ("/v1/queues/echo/announce", {"jobs": "many"}, "jobs", "Expected int, got str"),
    ("/v1/queues/echo/announce", {"jobs": 5, "sise": 1}, "sise", "no such field"),
    ("/v1/jobs/cancel", {"ids": [[]]}, "ids.0", "Expected str, got array"),
    ("/v1/erase", {"tenant": 5}, "tenant", "Expected str | null, got int"),
    ("/v1/erase", {"tenant": "a", "metadata": {"k": 5}}, "metadata", "Expected str, got int"),
    ("/v1/erase", {"tenant": "a", "wait_s": "soon"}, "wait_s", "Expected float, got str"),
    ("/v1/erase", {"tenant": "a", "all": True}, "all", "no such field"),
    ("/v1/erase", [1], "body", "what to erase"),
    ("/v1/dead-letters/redrive", {"ids": ["a", 5]}, "ids.1", "Expected str, got int"),
    ("/v1/dead-letters/redrive", {"task": "echo", "rat": 5}, "rat", "no such field"),
    ("/v1/dead-letters/redrive", {"task": "echo", "limit": "all"}, "limit", "Expected int | null, got str"),
]


@pytest.mark.parametrize(
    ("path", "body", "field", "rule"), BODIES, ids=[f"{row[0]} {row[2]}" for row in BODIES]
)
def test_the_field_is_named(path, body, field, rule):
    async def run(caller):
        answer = await caller.post(path, json=body)
        assert answer.status_code == 422
        (problem,) = answer.json()["errors"]
        assert (problem["path"], problem["rule"]) == (field, rule)
        assert field.split(".")[0] in answer.json()["detail"] or field == "body"

    call(run)
