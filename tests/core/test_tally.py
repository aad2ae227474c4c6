"""Numbers counted in classes: never wrong by more than a 64th, in bounded memory."""

import math

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.tally import EXACT, Tally, class_of, most_of, together

NUMBERS = st.lists(st.integers(0, 10**7), min_size=1, max_size=80)


def counted(numbers):
    tally = Tally()
    for number in numbers:
        tally.add(number)
    return tally


@given(st.integers(0, 10**12))
def test_a_class_holds_its_number_and_is_no_wider_than_a_64th(number):
    most = most_of(class_of(number))
    assert class_of(most) == class_of(number) and class_of(most + 1) == class_of(number) + 1
    assert number <= most <= number * (1 + 1 / 64) and (number >= EXACT or most == number)


@given(NUMBERS, st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]))
def test_a_quantile_is_that_of_the_sorted_numbers(numbers, share):
    true = sorted(numbers)[math.ceil(share * len(numbers)) - 1]
    assert true <= counted(numbers).quantile(share) <= true * (1 + 1 / 64)


@given(NUMBERS, NUMBERS)
def test_two_tallies_together_are_one(some, more):
    both, whole = together([counted(some), counted(more)]), counted(some + more)
    assert (both.classes, both.total, both.largest) == (whole.classes, whole.total, whole.largest)


def test_nothing_counted_has_no_quantile():
    assert Tally().quantile(0.99) == 0 and together([]).quantile(0.5) == 0


def test_memory_does_not_grow_with_what_is_counted():
    assert len(counted(range(0, 10**7, 97)).classes) < EXACT + 64 * 17
