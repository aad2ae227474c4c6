"""Whatever the door accepts, the child can read: the exported schema against decoding, type by type."""

import dataclasses
import enum
import json
import typing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.child.codec import make_decoder, whole_numbers
from forebay.child.schemas import input_schema
from forebay.core.task import TaskSpec
from forebay.declare.signature import Signature
from forebay.server.schema import compile_checks
from forebay.server.wire import decode


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(msgspec.Struct):
    n: int
    at: datetime | None = None
    tags: set[int] = set()


class Row(msgspec.Struct, array_like=True):
    n: int
    at: date | None = None


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    n: Annotated[int, msgspec.Meta(ge=2, le=9, multiple_of=2)]


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    born: date


@dataclasses.dataclass
class Box:
    n: int
    at: time = time(0)


class Typed(typing.TypedDict, total=False):
    n: typing.Required[int]
    wait: timedelta


class Pair(typing.NamedTuple):
    n: int
    price: Decimal = Decimal(0)


class Model(pydantic.BaseModel):
    n: int
    at: datetime | None = None
    day: date | None = None
    wait: timedelta | None = None
    key: UUID | None = None
    color: Color = Color.RED
    level: Level = Level.LOW
    few: Annotated[int, pydantic.Field(ge=1, lt=5)] = 1


TEXTS = [
    "", "x", "red", "RED", "1", "-1", "01", "1.0", "1e2", "a" * 9, "2020-01-31", "2020-02-31", "2020-01-31T10:00:00",
    "2020-01-31T10:00:00Z", "2020-01-31 10:00:00+02:00", "10:00:00", "10:00:00Z", "25:00:00", "P1D", "PT1.5S", "P1Y",
    "1 day", "6f1c6a3e-7d1c-4a52-9d1e-0c1f6f2f2f2f", "6f1c6a3e7d1c4a529d1e0c1f6f2f2f2f", "1.50", "NaN", "aGk=", "aGk",
    "****", "Cat", "Dog", "é😀", "1700000000",
]  # fmt: skip
NUMBERS = [
    0,
    1,
    2,
    4,
    5,
    -1,
    1.0,
    2.0,
    4.0,
    -0.0,
    1.5,
    0.5,
    1e3,
    1e22,
    2**53,
    2**63,
    2**64 + 1,
    -(2**63),
    10**30,
]
LEAF = st.sampled_from([*TEXTS, *NUMBERS, None, True, False]) | st.floats(-4, 4).map(
    lambda x: round(x * 2) / 2
)
NAMES = [
    "n",
    "at",
    "tags",
    "day",
    "wait",
    "key",
    "price",
    "lives",
    "born",
    "type",
    "color",
    "level",
    "few",
    "other",
]
ARRAYS = st.lists(LEAF, max_size=3)
OBJECTS = st.dictionaries(st.sampled_from([*NAMES, *TEXTS]), LEAF | ARRAYS, max_size=4)
LIKELY = st.fixed_dictionaries(
    {"n": st.sampled_from([1, 2, 1.0, 4.0, 3])},
    optional={name: LEAF | ARRAYS for name in NAMES[1:]},
)
PETS = st.fixed_dictionaries(
    {"type": st.sampled_from(["Cat", "Dog", "Cow"])}, optional={"lives": LEAF, "born": LEAF}
)
PAYLOADS = (
    LEAF | ARRAYS | OBJECTS | LIKELY | PETS | st.lists(LIKELY, max_size=2) | st.lists(ARRAYS, max_size=2)
)

# Each with a payload that must be taken: a door that refuses everything agrees with any child.
KINDS: list[tuple[Any, Any]] = [
    (int, 1.0), (float, 1), (bool, True), (str, "x"), (None, None), (int | None, 2.0), (int | str, 1.0), (int | float, 1.0),
    (datetime, "2020-01-31T10:00:00"), (Annotated[datetime, msgspec.Meta(tz=True)], "2020-01-31T10:00:00Z"),
    (Annotated[datetime, msgspec.Meta(tz=False)], "2020-01-31T10:00:00"), (date, "2020-01-31"), (time, "10:00:00Z"),
    (Annotated[time, msgspec.Meta(tz=False)], "10:00:00"), (timedelta, "P1D"), (UUID, TEXTS[22]), (Decimal, "1.50"),
    (bytes, "aGk="), (Color, "red"), (Level, 1.0), (Literal[1, 2], 2.0), (Literal["red", None], None),
    (list, [1]), (list[int], [1.0]), (tuple[int, str], [1.0, "x"]), (tuple[date, ...], ["2020-01-31"]), (set, [1, "x"]),
    (set[int], [1.0, 2]), (frozenset[Decimal], ["1.50"]), (dict, {"x": 1}), (dict[int, str], {"1": "x"}),
    (dict[float, int], {"1.0": 1}), (dict[UUID, int], {TEXTS[22]: 1}), (dict[Level, int], {"1": 1}), (dict[str, date], {"x": "2020-01-31"}),
    (dict[Literal[1, 2], int], {"2": 2}), (Annotated[int, msgspec.Meta(ge=2, multiple_of=2)], 4.0),
    (Annotated[str, msgspec.Meta(min_length=1, max_length=2, pattern="^[a-zé😀]*$")], "é😀"),
    (Annotated[list[int], msgspec.Meta(min_length=1)], [1]), (datetime | int, "2020-01-31T10:00:00"), (list[date] | date, ["2020-01-31"]),
    (Shape, {"n": 1.0, "at": "2020-01-31T10:00:00"}), (Row, [1.0, "2020-01-31"]), (Strict, {"n": 4.0}), (list[Shape], [{"n": 1}]),
    (Shape | None, None), (Cat | Dog, {"type": "Dog", "born": "2020-01-31"}), (Box, {"n": 1.0, "at": "10:00:00"}),
    (Typed, {"n": 1.0, "wait": "P1D"}), (Pair, [1.0, "1.50"]), (Model, {"n": 1.0, "at": "2020-01-31T10:00:00"}), (list[Model], [{"n": 2}]),
    (object, {"x": [1.0]}), (Any, 1.0),
]  # fmt: skip


def reading(kind):
    decoder = make_decoder(kind)

    def read(text):
        try:
            return decoder(text)
        except Exception:
            return decoder(whole_numbers(text))

    return read


def door(kind):
    check = compile_checks({"t": TaskSpec(name="t", input_schema=input_schema(Signature(input_type=kind)))})[
        "t"
    ]
    return lambda value: check is None or check.is_valid(value)


@pytest.mark.parametrize(("kind", "good"), KINDS, ids=[f"kind{n}" for n in range(len(KINDS))])
def test_what_the_door_accepts_the_child_reads(kind, good):
    accepts, read = door(kind), reading(kind)
    assert accepts(good)
    read(json.dumps(good).encode())

    @settings(max_examples=150, deadline=None, database=None)
    @given(PAYLOADS)
    def agrees(value):
        if accepts(value):
            read(json.dumps(value).encode())

    agrees()


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (datetime, "soon"), (date, "2020-02-31"), (time, "25:00:00"), (timedelta, "1 day"), (UUID, "x"), (Decimal, "x"),
        (bytes, "****"), (set, [[1]]), (dict[int, str], {"x": "y"}), (list[Shape], [{"n": 1, "at": "soon"}]),
        (Model, {"n": 1, "at": "soon"}), (Row, [1, "soon"]), (Box, {"n": 1, "at": "25:00:00"}),
    ],
)  # fmt: skip
def test_a_text_that_is_no_date_and_the_like_is_refused_at_the_door(kind, bad):
    assert not door(kind)(bad)


def test_of_doubled_names_the_last_counts_for_both():
    text = b'{"task":"t","payload":{"n":"x","n":1}}'
    submission, payload = decode(text)
    assert door(Shape)(payload) and reading(Shape)(bytes(submission.payload)).n == 1
