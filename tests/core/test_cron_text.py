"""Cron texts: what they name, and the one sentence for each mistake, which names the field."""

import pytest

from forebay.core.cron_text import LENGTH_MAX, read_cron

EVERY = {
    "minutes": tuple(range(60)),
    "hours": tuple(range(24)),
    "days": frozenset(range(1, 32)),
    "months": frozenset(range(1, 13)),
    "weekdays": frozenset(range(7)),
}
GOOD = [
    ("* * * * *", {}),
    ("0 3 * * *", {"minutes": (0,), "hours": (3,)}),
    (
        "*/15 8-18 * * mon-fri",
        {"minutes": (0, 15, 30, 45), "hours": tuple(range(8, 19)), "weekdays": {1, 2, 3, 4, 5}},
    ),
    (
        "5,50,10-12 0 1 JAN,dec *",
        {"minutes": (5, 10, 11, 12, 50), "hours": (0,), "days": {1}, "months": {1, 12}},
    ),
    ("0 0 * * 7", {"minutes": (0,), "hours": (0,), "weekdays": {0}}),
    ("0 0 * * 5-7", {"minutes": (0,), "hours": (0,), "weekdays": {5, 6, 0}}),
    ("7/20 0 * * *", {"minutes": (7, 27, 47), "hours": (0,)}),
    ("10-40/15 0 * * *", {"minutes": (10, 25, 40), "hours": (0,)}),
    ("  0   3  * *\t* ", {"minutes": (0,), "hours": (3,)}),
    ("@hourly", {"minutes": (0,)}),
    ("@Daily", {"minutes": (0,), "hours": (0,)}),
    ("@weekly", {"minutes": (0,), "hours": (0,), "weekdays": {0}}),
    ("@monthly", {"minutes": (0,), "hours": (0,), "days": {1}}),
    ("@yearly", {"minutes": (0,), "hours": (0,), "days": {1}, "months": {1}}),
    ("0 0 29 2 *", {"minutes": (0,), "hours": (0,), "days": {29}, "months": {2}}),
]


@pytest.mark.parametrize(("text", "named"), GOOD, ids=[text for text, _ in GOOD])
def test_a_text_names_its_minutes_hours_and_days(text, named):
    found = read_cron(text)
    for name, every in EVERY.items():
        assert getattr(found, name) == named.get(name, every), name


BAD = [
    ("", "must have five fields"),
    ("* * * *", "must have five fields"),
    ("* * * * * *", "must have five fields"),
    ("@often", "must have five fields"),
    ("* " * LENGTH_MAX, "must have five fields"),
    ("60 * * * *", "minute must be from 0 to 59, not '60'"),
    ("-1 * * * *", "minute must be from 0 to 59, not '-1'"),
    ("0 25 * * *", "hour must be from 0 to 23, not '25'"),
    ("0 3h * * *", "hour must be from 0 to 23, not '3h'"),
    ("0 0 0 * *", "day of the month must be from 1 to 31, not '0'"),
    ("0 0 L * *", "day of the month must be from 1 to 31, not 'L'"),
    ("0 0 1 13 *", "month must be from 1 to 12 or jan to dec, not '13'"),
    ("0 0 1 janu *", "month must be from 1 to 12 or jan to dec, not 'janu'"),
    ("0 0 * * 8", "day of the week must be from 0 to 7 or sun to sat, not '8'"),
    ("0 0 * * mo", "day of the week must be from 0 to 7 or sun to sat, not 'mo'"),
    ("30-10 * * * *", "minute must be a range that goes up, not '30-10'"),
    ("*/0 * * * *", "minute must be a step from 1 to 59, not '*/0'"),
    ("*/60 * * * *", "minute must be a step from 1 to 59, not '*/60'"),
    ("*/ * * * *", "minute must be a step from 1 to 59, not '*/'"),
    ("1,,2 * * * *", "minute must be from 0 to 59, not ''"),
    ("٣ * * * *", "minute must be from 0 to 59, not '٣'"),
    ("0 0 30 2 *", "day of the month must come in the month, and 30 of 2 never does"),
    ("0 0 31 4,6 *", "day of the month must come in the month, and 31 of 4,6 never does"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[ascii(text)[:30] for text, _ in BAD])
def test_a_wrong_text_is_refused_with_the_name_of_the_field(text, said):
    with pytest.raises(ValueError) as refused:
        read_cron(text)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_with_both_kinds_of_day_one_of_the_two_is_enough():
    thirteenth_or_friday = read_cron("0 0 13 * fri")
    assert thirteenth_or_friday.has_day(1, 13, 2) and thirteenth_or_friday.has_day(1, 2, 5)
    assert not thirteenth_or_friday.has_day(1, 14, 2)
    assert not read_cron("0 0 */2 * fri").has_day(1, 1, 2), "a star is no restriction"


@pytest.mark.parametrize(
    ("text", "gap_s"), [("* * * * *", 60), ("0 3 * * *", 3600), ("0,50 * * * *", 600), ("*/15 * * * *", 900)]
)
def test_the_least_gap_is_known_from_the_minutes(text, gap_s):
    assert read_cron(text).gap_least_s == gap_s
