"""Erlang's formulas against printed tables, exact fractions and each other."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.sizing.erlang import blocked, late_of, servers_for, wait, waiting

SERVERS = st.integers(1, 60)
LOADS = st.floats(0.01, 50)

# Printed tables of Erlang B: so many erlangs on so many lines lose this share.
TABLE_B = [
    (1, 0.0101, 0.01), (2, 0.1526, 0.01), (5, 1.3608, 0.01), (10, 4.4612, 0.01), (20, 12.031, 0.01),
    (50, 37.901, 0.01), (100, 84.064, 0.01), (10, 3.092, 0.001), (100, 75.24, 0.001), (10, 6.216, 0.05),
]  # fmt: skip


def exact_c(servers, erlangs):
    """Erlang C by its sum, in fractions."""
    a = Fraction(erlangs)
    terms = [a**n / math.factorial(n) for n in range(servers)]
    last = a**servers / math.factorial(servers) * servers / (servers - a)
    return float(last / (sum(terms) + last))


@pytest.mark.parametrize(("lines", "erlangs", "lost"), TABLE_B)
def test_erlang_b_is_what_the_tables_print(lines, erlangs, lost):
    assert blocked(lines, erlangs) == pytest.approx(lost, rel=0.005)


@pytest.mark.parametrize(
    ("servers", "erlangs", "share"),
    [(1, 0.7, 0.7), (2, 1, 1 / 3), (3, 2, 4 / 9), (4, 3, 0.5094), (5, 4, 0.5541), (10, 8, 0.4092)],
)
def test_erlang_c_is_what_the_tables_print(servers, erlangs, share):
    assert waiting(servers, erlangs) == pytest.approx(share, abs=5e-5)


@given(SERVERS, st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100))
def test_erlang_c_is_the_sum_it_is_defined_by(servers, busy):
    assert waiting(servers, float(servers * busy)) == pytest.approx(
        exact_c(servers, servers * busy), rel=1e-9
    )


@pytest.mark.parametrize(("servers", "erlangs"), [(5_000, 4_900.0), (50_000, 49_800.0)])
def test_thousands_of_servers_neither_overflow_nor_lose_digits(servers, erlangs):
    beta = (1 - erlangs / servers) * math.sqrt(servers)  # Halfin and Whitt's limit for many servers
    normal = 0.5 * (1 + math.erf(beta / math.sqrt(2)))
    limit = 1 / (1 + math.sqrt(2 * math.pi) * beta * normal * math.exp(beta * beta / 2))
    assert waiting(servers, erlangs) == pytest.approx(limit, rel=0.02)


def test_one_server_waits_as_long_as_m_m_1_and_m_d_1_say():
    m_m_1 = wait(1, 0.8, 0.05)
    assert m_m_1.mean_s == pytest.approx(0.8 * 0.05 / 0.2)
    assert m_m_1.late_s == pytest.approx(0.05 / 0.2 * math.log(0.8 / 0.01))
    assert wait(1, 0.8, 0.05, spread=0.5).mean_s == pytest.approx(0.8 * 0.05 / (2 * 0.2))


def test_a_load_that_is_all_they_can_do_waits_for_ever():
    assert waiting(4, 4.0) == 1.0
    assert wait(4, 4.0, 0.1).late_s == math.inf and wait(4, 5.0, 0.1).utilisation == 1.25


def test_a_quantile_that_few_exceed_waits_not_at_all():
    assert wait(10, 1.0, 0.1).late_s == 0.0
    assert late_of(0.0, 5.0, 0.99) == 0.0


@given(SERVERS, LOADS, LOADS)
def test_more_load_waits_longer(servers, some, more):
    some, more = sorted((some, more))
    assert waiting(servers, some) <= waiting(servers, more) + 1e-12
    assert wait(servers, some, 0.1).late_s <= wait(servers, more, 0.1).late_s + 1e-12


@given(SERVERS, LOADS)
def test_another_server_makes_nobody_wait_longer(servers, load):
    assert waiting(servers + 1, load) <= waiting(servers, load) + 1e-12
    assert wait(servers + 1, load, 0.1).late_s <= wait(servers, load, 0.1).late_s + 1e-12


@given(LOADS, st.floats(0.0, 2.0), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_the_servers_it_names_are_enough_and_one_less_is_not(load, wait_max_s, quantile):
    found = servers_for(load, 0.1, wait_max_s, quantile=quantile)
    assert wait(found, load, 0.1, quantile=quantile).late_s <= wait_max_s
    assert found == 1 or wait(found - 1, load, 0.1, quantile=quantile).late_s > wait_max_s


def test_a_load_beyond_every_fleet_has_no_answer():
    assert servers_for(2e6, 0.1, 1.0) is None
