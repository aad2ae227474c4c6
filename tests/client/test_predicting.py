"""client.predict: one answer, or the refusal of the server as it told it."""

import asyncio

import pytest

from forebay import AsyncClient, Client
from forebay.errors import DeadlinePassedError, InfeasibleError, InvalidError, UnreachableError
from tests.client.basin import Basin

REFUSED = (
    429,
    {"retry-after-ms": "20"},
    {"code": "cannot_meet_deadline", "detail": "no", "retry_after_s": 0.02, "deadline_needed_s": 0.31},
)
DONE = (200, {}, {"y": 7})


def asked(basin):
    return basin.paths("POST", "/v1/predict")


def test_the_output_is_returned():
    with Basin() as basin, Client(basin.url) as client:
        basin.scripts = [DONE]
        assert client.predict("Model", {"x": 3}, deadline="200ms", priority="high") == {"y": 7}
        assert asked(basin) == ["/v1/predict/Model"]


def test_a_refusal_is_raised_at_once_with_what_would_do():
    with Basin() as basin, Client(basin.url) as client:
        basin.scripts = [REFUSED, DONE]
        with pytest.raises(InfeasibleError) as refused:
            client.predict("Model", 1, deadline=0.2)
        assert refused.value.retry_after_s == 0.02 and refused.value.offer == {"deadline_needed_s": 0.31}
        assert len(asked(basin)) == 1


def test_a_refusal_is_waited_out_when_that_is_asked_for():
    with Basin() as basin, Client(basin.url) as client:
        basin.scripts = [REFUSED, REFUSED, DONE]
        assert client.predict("Model", 1, retry=True) == {"y": 7}
        assert len(asked(basin)) == 3


def test_what_was_late_is_never_sent_again():
    with Basin() as basin, Client(basin.url) as client:
        basin.scripts = [(504, {}, {"code": "deadline_passed", "detail": "late"}), DONE]
        with pytest.raises(DeadlinePassedError):
            client.predict("Model", 1, retry=True)
        assert len(asked(basin)) == 1


def test_a_lost_answer_is_not_asked_for_again():
    with Basin() as basin, Client(basin.url) as client:
        basin.scripts = ["drop", DONE]
        with pytest.raises(UnreachableError):
            client.predict("Model", 1, retry=True)


def test_a_deadline_that_is_none_is_named_before_anything_is_sent():
    with Basin() as basin, Client(basin.url) as client:
        with pytest.raises(InvalidError, match="deadline"):
            client.predict("Model", 1, deadline="soon")
        assert not asked(basin)


def test_the_client_that_awaits_does_the_same():
    async def run(url):
        async with AsyncClient(url) as client:
            return await client.predict("Model", {"x": 3}, deadline=0.2, retry=True)

    with Basin() as basin:
        basin.scripts = [REFUSED, DONE]
        assert asyncio.run(run(basin.url)) == {"y": 7}
