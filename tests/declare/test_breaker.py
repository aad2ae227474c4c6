"""forebay.Breaker as users write it: decorator and context, sync and async, one state for one name."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import forebay
from forebay.declare import circuits as module
from forebay.errors import AppError


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(autouse=True)
def own_names(monkeypatch):
    monkeypatch.setattr(module, "_named", {})
    monkeypatch.setattr(module, "_watchers", [])


def three(clock, **more):
    return forebay.Breaker(failures=3, window="5s", clock=clock, **more)


def fail(breaker, times=3, error=ConnectionError):
    for _ in range(times):
        with pytest.raises(error), breaker:
            raise error("no")


def test_three_failures_in_five_seconds_open_it_and_it_says_when_to_come_back(clock):
    breaker = three(clock, name="features")
    fail(breaker)
    clock.now += 10.0
    with (
        pytest.raises(
            forebay.BreakerOpenError, match="the breaker features is open: 3 bad calls within 5 s"
        ) as seen,
        breaker,
    ):
        raise AssertionError("it was called")
    assert seen.value.code == "breaker_open"
    assert seen.value.status == 503
    assert seen.value.retry_after_s == pytest.approx(20.0)
    assert (breaker.state, breaker.trips, breaker.retry_after_s) == ("open", 1, pytest.approx(20.0))


def test_after_open_for_one_good_call_closes_it(clock):
    breaker = three(clock, open_for="30s")
    fail(breaker)
    clock.now += 30.0
    assert breaker.state == "half_open"
    with breaker:
        pass
    assert breaker.state == "closed"


def test_by_default_half_of_ten_calls_that_fail_or_exceed_one_second_open_it(clock):
    breaker = forebay.Breaker(clock=clock)

    @breaker
    def look_up(seconds):
        clock.now += seconds
        if seconds < 0.001:
            raise TimeoutError
        return seconds

    for seconds in (0.1, 0.1, 0.1, 0.1, 0.1, 1.1, 1.1, 1.1, 1.1):
        assert look_up(seconds) == seconds
    with pytest.raises(TimeoutError):
        look_up(0.0)
    assert breaker.state == "open"


def test_by_failures_alone_a_slow_call_is_a_good_one_unless_slow_is_given(clock):
    def state_after(breaker):
        for _ in range(3):
            with breaker:
                clock.now += 1.5
        return breaker.state

    assert state_after(three(clock)) == "closed"
    assert state_after(three(clock, slow="1s")) == "open"
    assert state_after(forebay.Breaker(clock=clock, slow=None, calls_min=1)) == "closed"


@pytest.mark.parametrize(
    ("fallback", "answer"), [("canned", "canned"), (None, None), (lambda key: f"cached {key}", "cached a")]
)
def test_while_it_is_open_a_decorated_function_answers_with_its_fallback(clock, fallback, answer):
    breaker, calls = three(clock, fallback=fallback), []

    @breaker
    def look_up(key):
        calls.append(key)
        raise ConnectionError

    for _ in range(3):
        with pytest.raises(ConnectionError):
            look_up("a")
    assert look_up("a") == answer
    assert len(calls) == 3


def test_a_coroutine_function_stays_one_and_its_fallback_may_be_one_too(clock):
    async def cached(key):
        return f"cached {key}"

    @three(clock, fallback=cached)
    async def look_up(key):
        raise ConnectionError

    async def doing():
        assert asyncio.iscoroutinefunction(look_up)
        for _ in range(3):
            with pytest.raises(ConnectionError):
                await look_up("a")
        return await look_up("a")

    assert asyncio.run(doing()) == "cached a"


def test_the_guarded_function_keeps_its_name_its_arguments_and_its_answer(clock):
    @three(clock)
    def add(a, *, b=1):
        """Adds."""
        return a + b

    assert (add.__name__, add.__doc__, add(2, b=3)) == ("add", "Adds.", 5)


def test_exceptions_in_ignore_and_cancels_say_nothing(clock):
    breaker = three(clock, ignore=(KeyError, ValueError))
    fail(breaker, 5, KeyError)
    fail(breaker, 5, UnicodeDecodeErrorLike)
    fail(breaker, 5, asyncio.CancelledError)
    fail(breaker, 5, KeyboardInterrupt)
    assert breaker.state == "closed"


class UnicodeDecodeErrorLike(ValueError):
    pass


def test_a_cancelled_probe_frees_its_place_for_the_next(clock):
    breaker = three(clock)
    fail(breaker)
    clock.now += 30.0

    async def doing():
        begun = asyncio.Event()

        async def probe():
            async with breaker:
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(probe())
        await begun.wait()
        with pytest.raises(forebay.BreakerOpenError):
            async with breaker:
                raise AssertionError("a second probe")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert breaker.state == "half_open"
        async with breaker:
            pass

    asyncio.run(doing())
    assert breaker.state == "closed"


def test_contexts_within_each_other_and_beside_each_other_are_told_apart(clock):
    outer, inner = three(clock), three(clock)
    for _ in range(3):
        with outer:
            with pytest.raises(ConnectionError), inner:
                raise ConnectionError
    assert (outer.state, inner.state) == ("closed", "open")

    async def doing():
        breaker = three(clock)

        async def one(ok):
            async with breaker:
                await asyncio.sleep(0)
                if not ok:
                    raise ConnectionError

        await asyncio.gather(*(one(index % 2) for index in range(4)), return_exceptions=True)
        assert breaker.state == "closed"
        await asyncio.gather(*(one(False) for _ in range(1)), return_exceptions=True)
        return breaker.state

    assert asyncio.run(doing()) == "open"


def test_breakers_of_one_name_share_their_state_and_must_agree_on_their_limits(clock):
    fail(three(clock, name="db"))
    assert three(clock, name="db").state == "open"
    assert three(clock, name="other").state == "closed"
    with pytest.raises(AppError, match="breaker db: made twice with different limits"):
        forebay.Breaker("db", failures=4)


def test_each_of_many_has_a_state_of_its_own_and_only_so_many_are_kept(clock, monkeypatch):
    monkeypatch.setattr(module, "KEYS_MAX", 3)
    breaker = three(clock, name="hosts", fallback="none")
    fail(breaker.of("a"))
    assert [breaker.of(key).state for key in ("a", "b", "c")] == ["open", "closed", "closed"]
    assert (breaker.state, three(clock, name="hosts").of("a").state) == ("closed", "open")
    assert breaker.of("a")(lambda: "called")() == "none"
    assert breaker.of("d").state == "closed"  # in the place of b, which was used the longest ago
    assert (breaker.of("a").state, len(breaker._circuit.keyed)) == ("open", 3)


def test_many_threads_see_one_breaker_and_only_one_of_them_is_the_probe(clock):
    breaker = three(clock)
    fail(breaker)
    clock.now += 30.0
    start, probes, refused = threading.Barrier(16), [], []
    leave = threading.Event()

    def one(_):
        start.wait(10.0)
        try:
            with breaker:
                probes.append(1)
                leave.wait(10.0)
        except forebay.BreakerOpenError:
            refused.append(1)
            if len(refused) == 15:
                leave.set()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(16)))
    assert (len(probes), len(refused)) == (1, 15)
    assert breaker.state == "closed"


def test_threads_that_hammer_it_lose_no_call(clock):
    breaker = forebay.Breaker(rate=1.0, calls_min=4_001, clock=clock)

    def many(_):
        for _ in range(500):
            with pytest.raises(ConnectionError), breaker:
                raise ConnectionError

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(many, range(8)))
    assert breaker.state == "closed"
    fail(breaker, 1)
    assert breaker.state == "open"


def test_who_watches_hears_where_named_ones_stand_and_every_change(clock):
    three(clock, name="early")
    heard = []
    assert [report.name for report in module.watch(heard.append)] == ["early"]
    breaker = three(clock, name="late")
    fail(three(clock))  # without a name: nobody's business
    fail(breaker)
    clock.now += 30.0
    with breaker:
        pass
    assert [(one.name, one.state, one.trips, one.wait_s) for one in heard] == [
        ("late", "closed", 0, 0.0), ("late", "open", 1, 30.0), ("late", "half_open", 1, 0.0), ("late", "closed", 1, 0.0)
    ]  # fmt: skip
    assert heard[1].reason == "3 bad calls within 5 s"


def test_in_an_outage_of_a_dependency_the_tail_latency_falls_by_more_than_sixty_percent(clock):
    """20 calls a second for five minutes; from the second to the fourth the dependency hangs, and each call
    of it ends after its timeout of 2 s."""

    def latencies(breaker):
        took, begin = [], clock.now
        for number in range(6_000):
            at = clock.now = max(clock.now, begin + number / 20)
            try:
                with breaker:
                    hangs = 60 <= at - begin < 240
                    clock.now += 2.0 if hangs else 0.02
                    if hangs:
                        raise TimeoutError
            except (TimeoutError, forebay.BreakerOpenError):
                pass
            took.append(clock.now - at)
            clock.now = at  # callers do not wait for each other
        return sorted(took)

    without = latencies(forebay.Breaker(failures=10_000, window="1s", clock=clock))
    guarded = latencies(forebay.Breaker(clock=clock))
    p95 = int(0.95 * len(without))
    assert without[p95] == pytest.approx(2.0)
    assert guarded[p95] <= 0.4 * without[p95]
    assert sum(one > 1.0 for one in guarded) < 120, "half of the calls of 10 s, and a probe each 30 s"


MISTAKES = [
    (dict(failures=0), "breaker: failures must be a whole number from 1 to 10,000, not 0"),
    (dict(rate=1.5), "breaker: rate must be a share above 0 and at most 1, such as 0.5, not 1.5"),
    (dict(rate=True), "rate must be a share"),
    (dict(window="never"), "window must be a duration above 0"),
    (dict(open_for=0), "open_for must be a duration above 0"),
    (dict(slow="fast"), "slow must be a duration above 0"),
    (dict(ignore="KeyError"), "ignore must be exception classes"),
    (dict(name=""), "name must be a text of 1 to 100 printable characters"),
    (dict(name="a\nb"), "name must be a text"),
    (dict(calls_min=0), "calls_min must be a whole number"),
    (dict(shared=True), "breaker: shared needs a name"),
    (dict(name="features", shared="yes"), "shared must be"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_a_wrong_argument_is_one_line_with_field_rule_and_value(arguments, words):
    with pytest.raises(AppError) as seen:
        forebay.Breaker(**arguments)
    assert words in str(seen.value)
    assert len(str(seen.value).splitlines()) == 1 and len(str(seen.value)) < 300


def test_a_generator_is_refused_as_its_call_returns_before_it_works(clock):
    with pytest.raises(AppError, match="is a generator; put `with breaker:` in it"):

        @three(clock)
        def walk():
            yield 1


def test_names_without_end_are_refused(clock, monkeypatch):
    monkeypatch.setattr(module, "NAMED_MAX", 3)
    for number in range(3):
        three(clock, name=f"user {number}")
    with pytest.raises(AppError, match="there are 3 names in this process already"):
        three(clock, name="user 3")


def test_a_shared_one_follows_what_it_is_told_and_others_do_not(clock):
    shared, own = three(clock, name="shared", shared=True), three(clock, name="own")
    heard = []
    module.watch(heard.append)
    for name in ("shared", "own", "unknown"):
        module.told(name, "open", 20.0, "3 bad calls within 5 s")
    assert (shared.state, own.state) == ("open", "closed")
    assert [(one.name, one.state, one.trips, one.told) for one in heard] == [("shared", "open", 0, True)]
    module.told("shared", "closed", 0.0, "the probe went well")
    assert (shared.state, heard[-1].state, heard[-1].told) == ("closed", "closed", True)
    fail(shared)
    assert (heard[-1].state, heard[-1].told, heard[-1].trips) == ("open", False, 1)


def test_it_tells_once_for_which_task_it_was_used(clock):
    heard = []
    module.watch(heard.append)
    breaker = three(clock, name="features")
    for task in ("a", "a", "b", "a"):
        with breaker:
            pass
        module.works_for(task)
    fail(breaker, 1)
    assert [one.tasks for one in heard] == [(), ("a",), ("a", "b")]
    module.works_for("")


def test_two_of_one_name_are_both_shared_or_neither(clock):
    three(clock, name="features", shared=True)
    with pytest.raises(AppError, match="made twice with different limits"):
        three(clock, name="features")
