"""Envelope: what is packed comes out, and bytes from anywhere never do worse than an InvalidError."""

import json

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.envelope import HEADER_BYTES_MAX, header_of, pack, parse, unpack
from forebay.errors import InvalidError


@given(
    st.dictionaries(st.text(max_size=20), st.integers() | st.text(max_size=50), max_size=9),
    st.binary(max_size=99),
)
def test_what_is_packed_comes_out(header, pixels):
    found, rest = unpack(pack(header) + pixels)
    assert (found, bytes(rest)) == (header, pixels)


@given(st.binary(max_size=200))
def test_bytes_from_anywhere_are_an_envelope_or_are_refused(data):
    try:
        found, pixels = unpack(data)
        header_of(found, len(pixels))
    except InvalidError as error:
        assert "\n" not in str(error)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
        max_leaves=12,
    ),
    st.sampled_from(["shape", "dtype", "captured_at", "deadline", "seq", "facts", "colour"]),
)
def test_a_field_of_any_value_is_taken_or_named(value, name):
    try:
        header_of({name: value}, 4)
    except InvalidError as error:
        assert name in str(error)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"7",
        b'"x"',
        b"\xff",
        b"[" * 8_000,
        b'{"a":' * 2_000,
        b" " * (HEADER_BYTES_MAX + 1),
    ],
)
def test_a_header_is_a_json_object_of_bounded_size(text):
    with pytest.raises(InvalidError, match="the header of a frame"):
        parse(text)


@pytest.mark.parametrize("header", [{"a": float("nan")}, {"a": b"x"}, {"a": "x" * 9_000}])
def test_what_no_header_can_hold_is_refused_when_it_is_packed(header):
    with pytest.raises(InvalidError, match="the header of a frame"):
        pack(header)


@pytest.mark.parametrize(
    "kind", ["uint8", "int16", "<f4", ">u2", "float64", "bool", "|b1", "=i8", "f2", "u1"]
)
def test_every_kind_of_number_has_the_width_that_numpy_says(kind):
    array = numpy.zeros((3, 5), kind)
    assert header_of({"shape": [3, 5], "dtype": kind}, array.nbytes).shape == (3, 5)
    with pytest.raises(InvalidError, match="and the frame has"):
        header_of({"shape": [3, 5], "dtype": kind}, array.nbytes + 1)
    for known in (array.dtype.str, array.dtype.name):  # as sinks and as people write it
        assert header_of({"shape": [15], "dtype": known}, array.nbytes).dtype == known


@pytest.mark.parametrize(
    "kind", ["O", "U4", "S1", "V8", "datetime64", "c8", "float128", "f1", "", "x" * 99, "i4,i4"]
)
def test_other_kinds_are_refused(kind):
    with pytest.raises(InvalidError):
        numpy.empty(0, header_of({"shape": [1], "dtype": kind}, 1).dtype)


@pytest.mark.parametrize(
    "shape", [[], [0], [-1, 4], [1.5], ["4"], "4", 4, [True, 4], [1] * 7, [2**40], [2**31] * 6]
)
def test_a_shape_is_a_few_whole_numbers(shape):
    with pytest.raises(InvalidError, match="shape"):
        header_of({"shape": shape}, 4)


def test_a_frame_without_bytes_is_refused():
    with pytest.raises(InvalidError, match="has no bytes"):
        header_of({}, 0)
    with pytest.raises(InvalidError):
        unpack(json.dumps({}).encode()[:1])
