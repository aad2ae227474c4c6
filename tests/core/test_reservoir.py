"""Reservoir: order, places, bytes and tenants of what waits."""

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.job import Job
from forebay.core.requests import Request, RequestPolicy, Reservoir


def a_request(seq, *, priority=5, deadline_at=10.0, tenant="", payload=b"12"):
    return Request(
        Job(f"r{seq}", "t", payload, 0.0, 0.0, priority, deadline_at=deadline_at, tenant=tenant), seq
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 100)), max_size=60), st.data())
def test_the_most_urgent_class_and_in_it_the_earliest_deadline_goes_first(asked, data):
    reservoir = Reservoir(RequestPolicy())
    requests = [a_request(n, priority=p, deadline_at=d) for n, (p, d) in enumerate(asked)]
    for request in requests:
        place = reservoir.ahead(request.job.priority, request.deadline_at)
        reservoir.put(request)
        assert reservoir.at(place) is request
    if requests:
        gone = data.draw(st.sampled_from(requests))
        assert reservoir.take(gone) and not reservoir.take(gone)
        requests.remove(gone)
    assert list(reservoir) == sorted(requests, key=lambda one: one.key)
    assert reservoir.bytes == 2 * len(requests) and len(reservoir) == len(requests)


def test_the_crowd_is_the_tenant_with_at_least_two_more():
    reservoir = Reservoir(RequestPolicy())
    for seq in range(3):
        reservoir.put(a_request(seq, tenant="a"))
    reservoir.put(a_request(9, tenant="b"))
    assert reservoir.crowd("b") == "a" and reservoir.crowd("c") == "a" and reservoir.crowd("a") is None
    newest = reservoir.newest_of("a", 5)
    assert newest is not None and newest.seq == 2
    reservoir.take(newest)
    assert reservoir.crowd("b") is None
