"""How deep JSON may be nested is the same for every form of it, whatever quick look spares the counting."""

import pytest

from forebay.errors import MalformedError
from forebay.server.limits import NESTING_MAX
from forebay.server.wire import decode


def lists(depth):
    return "[" * depth + "]" * depth


def objects(depth):
    return '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1)


def last_of_few(depth):
    return '{"x":1,"y":' + lists(depth - 1) + "}"


def last_of_many(depth):
    return "{" + "".join(f'"m{number}":1,' for number in range(200)) + '"y":' + lists(depth - 1) + "}"


@pytest.mark.parametrize("form", [lists, objects, last_of_few, last_of_many])
def test_a_payload_may_be_nested_to_the_limit_and_not_one_level_deeper(form):
    decode(f'{{"task":"t","payload":{form(NESTING_MAX)}}}'.encode())
    with pytest.raises(MalformedError, match=f"deeper than {NESTING_MAX} levels"):
        decode(f'{{"task":"t","payload":{form(NESTING_MAX + 1)}}}'.encode())


def test_brackets_inside_texts_are_no_levels():
    _, payload = decode(f'{{"task":"t","payload":{{"a":["{"[" * 500}"],"b":"{"{" * 500}"}}}}'.encode())
    assert payload == {"a": ["[" * 500], "b": "{" * 500}
