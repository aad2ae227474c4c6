"""Blobs, the rules: ids cannot be made up, never come twice, and are found wherever a text names them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.blobs import belongs, created_at, is_id, named, new_id, reference_of

A = new_id("", now=1_000.25, chance=b"a" * 16)
B = new_id("acme", now=1_000.25, chance=b"a" * 16)


def test_an_id_tells_its_tenant_and_its_time_and_nothing_else():
    assert (belongs(A, ""), belongs(A, "acme"), belongs(B, "acme"), belongs(B, "")) == (
        True,
        False,
        True,
        False,
    )
    assert created_at(A) == 1_000.25
    assert A != new_id("", now=1_000.25, chance=b"b" * 16)


@pytest.mark.parametrize(
    "text",
    [
        *("", "../x", "/etc/passwd", "..%2fx", "C:\\x", A[:-1], A + "0", A.upper(), A[:-1] + "\n", A + "\n"),
        *("\0" * 56, "０" * 56, "." * 56, "/" * 56, A[:-1] + "/", None, 7, ["x"], {"$blob": A}, A.encode()),
    ],
)
def test_nothing_else_is_an_id(text):
    assert not is_id(text)


def test_a_text_names_each_blob_once_and_quoted_text_names_none():
    text = {"a": {"$blob": A}, "b": [{"$blob": B}, {"$blob": A}], "c": json.dumps({"$blob": "c" * 56})}
    assert named(json.dumps(text).encode()) == (A, B)
    assert named(json.dumps(text, indent=3).encode()) == (A, B)
    assert named(b'{"$blob": "short"}') == named(b"") == named(None) == ()


def test_a_reference_has_one_member():
    assert reference_of({"$blob": A}) == A
    assert reference_of({"$blob": A, "x": 1}) is None
    assert reference_of([A]) is None


JSON = st.recursive(
    st.none() | st.text() | st.sampled_from([{"$blob": A}, {"$blob": B}, "$blob", A]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def references(value):
    if isinstance(value, dict):
        found = reference_of(value)
        yield from [found] if is_id(found) else (one for inner in value.values() for one in references(inner))
    elif isinstance(value, list):
        yield from (one for inner in value for one in references(inner))


@given(JSON)
def test_the_scan_of_a_text_misses_no_reference_in_it(value):
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only).encode()
        assert set(references(value)) <= set(named(text))
