"""Frames of a stage on their way to a task: JSON as for a request, arrays through memory of the sender."""

import os

import msgspec
import numpy
import pytest

from forebay.child.codec import make_fitter
from forebay.child.pixels import MAPPED_MAX, FrameReader
from forebay.errors import InvalidError
from forebay.node.frames import FRAME_MARK, FramePayload
from forebay.pipeline.shared import Shelf


def image(value=7, shape=(4, 6, 3)):
    return numpy.full(shape, value, "uint8")


def test_json_values_travel_as_the_text_that_a_request_has():
    assert Shelf().payload({"a": [1, "x", None]}) == b'{"a":[1,"x",null]}'


@pytest.mark.parametrize(
    "value",
    [
        image(),
        {"image": image(), "camera": "door", "boxes": [image(1, (2,)), image(2, (0, 4))]},
        [b"jpeg", 1.5, None],
        numpy.arange(24, dtype="float32").reshape(4, 6)[::2, ::3],
    ],
)
def test_what_is_read_is_what_was_sent(value):
    shelf, reader = Shelf(), FrameReader()
    found = reader.value(shelf.payload(value))
    numpy.testing.assert_equal(found, value)


def test_arrays_are_views_of_the_senders_memory_and_cannot_be_written():
    shelf, reader = Shelf(), FrameReader()
    first = reader.value(shelf.payload(image(1)))
    assert not first.flags.writeable
    reader.value(shelf.payload(image(2)))
    assert int(first[0, 0, 0]) == 2


def test_memory_that_grew_is_found_though_its_descriptor_has_the_old_number():
    shelf, reader = Shelf(), FrameReader()
    reader.value(shelf.payload(image(1)))
    large = reader.value(shelf.payload(image(3, (200, 300, 3))))
    assert large.shape == (200, 300, 3)
    assert (large == 3).all()


def test_a_sender_that_has_gone_is_an_error_and_no_other_memory_is_read():
    shelf, reader = Shelf(), FrameReader()
    payload = shelf.payload(image())
    shelf.close()
    with pytest.raises(ValueError, match="the frame's sender has gone"):
        reader.value(payload)
    other = os.memfd_create("other")
    try:
        frame = FramePayload(b"\x01", [(0, "|u1", [1])], os.getpid(), other, 1, 1)
        with pytest.raises(ValueError, match="another process has its number"):
            reader.value(FRAME_MARK + msgspec.msgpack.encode(frame))
    finally:
        os.close(other)


def test_a_reader_keeps_the_memory_of_so_many_senders_at_most():
    reader, shelves = FrameReader(), [Shelf() for _ in range(MAPPED_MAX + 5)]
    for shelf in shelves:
        reader.value(shelf.payload(image()))
    assert len(reader._mapped) == MAPPED_MAX
    assert int(reader.value(shelves[0].payload(image(9)))[0, 0, 0]) == 9


@pytest.mark.parametrize("value", [object(), {"a": object()}, [numpy.array(["x"], dtype=object)]])
def test_what_can_be_no_payload_is_named(value):
    with pytest.raises(InvalidError):
        Shelf().payload(value)


class Seen(msgspec.Struct):
    image: object
    camera: str = ""


def test_a_frame_becomes_what_the_handler_annotated_and_one_that_does_not_fit_is_refused():
    seen = make_fitter(Seen)({"image": image(), "camera": "door"})
    assert seen.camera == "door"
    assert seen.image.shape == (4, 6, 3)
    with pytest.raises(ValueError, match="Expected `str`"):
        make_fitter(Seen)({"image": image(), "camera": 3})
