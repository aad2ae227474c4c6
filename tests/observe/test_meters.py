"""Meters and what a scrape says of them."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.samples import Sample

from forebay.core.admission import Reason
from forebay.core.job import Depth, Job, Line
from forebay.core.lifecycle import Event
from forebay.core.requests import End, Ended, Request
from forebay.core.variants import Moved
from forebay.observe.guarding import guarding
from forebay.observe.lanes import LaneMeters
from forebay.observe.logs import Seldom
from forebay.observe.meters import BREAKERS_MAX, SECONDS_BOUNDS, Histogram, Meters
from forebay.observe.metrics import RENDER_FRESH_S, Exposition
from forebay.observe.together import added


class Turning:
    def __init__(self):
        self.at = 100.0

    def __call__(self):
        return self.at


@given(st.lists(st.floats(0, 10_000), max_size=50))
def test_many_at_once_is_the_same_as_one_by_one(values):
    one, many = Histogram(SECONDS_BOUNDS), Histogram(SECONDS_BOUNDS)
    for value in values:
        one.observe(value)
    many.observe_many(values)
    assert one.counts == many.counts and abs(one.total - many.total) < 1e-3
    assert sum(one.counts) == len(values)


def test_a_value_on_a_bound_belongs_to_it():
    histogram = Histogram((1.0, 2.0))
    histogram.observe_same(1.0, 3)
    histogram.observe(1.1)
    histogram.observe(9.0)
    assert histogram.counts == [3, 1, 1] and histogram.total == 13.1


def test_a_scrape_says_of_each_priority_how_many_wait_since_when_and_how_long_they_waited():
    lines = (Line(2, 5, 99.0), Line(8, 1, 40.0))
    meters = Exposition(["a"], now=Turning(), depths=lambda: {"a": Depth(queued=6, lines=lines)})
    meters.for_task("a").granted([2, 5, 2], [0.5, 1.0, 0.25])
    text, _ = meters.render()
    for line in (
        'inference_priority_queue_length{priority="2",task="a"} 5.0',
        'inference_priority_queue_length{priority="5",task="a"} 0.0',
        'inference_priority_queue_length{priority="8",task="a"} 1.0',
        'inference_priority_oldest_age_seconds{priority="2",task="a"} 1.0',
        'inference_priority_oldest_age_seconds{priority="5",task="a"} 0.0',
        'inference_priority_oldest_age_seconds{priority="8",task="a"} 60.0',
        'inference_priority_wait_seconds_count{priority="2",task="a"} 2.0',
        'inference_priority_wait_seconds_sum{priority="2",task="a"} 0.75',
        'inference_priority_wait_seconds_count{priority="8",task="a"} 0.0',
        'inference_queue_wait_seconds_count{task="a"} 3.0',
    ):
        assert line in text.decode().splitlines(), line


def test_a_scrape_says_what_was_counted():
    now = Turning()
    meters = Exposition(
        ["a"],
        now=now,
        depths=lambda: {"a": Depth(queued=3, running=1, bytes=70, oldest_at=90.0, dead=2)},
        bounds_of={"a": (10, 1000)},
        workers=lambda: [{"worker": "w", "state": "crashed", "memory_bytes": None}],
    )
    meter = meters.for_task("a")
    meter.arrived(5)
    meter.admitted(3)
    meter.refused(Reason.FULL.value, 2)
    meter.attempted(Event.COMPLETED.value, 2)
    meter.restarted("crash")
    meter.stale()
    meter.latency_s.observe_many([0.04, 0.045, 0.05])
    meter.wait_s.observe(0.5)
    meter.batch_size.observe(16)
    meter.eta_error_s.observe(0.3)
    meters.bound_reached("lines_max")
    text, kind = meters.render()
    assert kind.startswith("text/plain")
    for line in (
        'inference_queue_length{task="a"} 3.0',
        'inference_queue_bytes{task="a"} 70.0',
        'inference_queue_capacity{task="a"} 10.0',
        'inference_queue_oldest_age_seconds{task="a"} 10.0',
        'inference_dead_letters{task="a"} 2.0',
        'inference_arrivals_total{task="a"} 5.0',
        'inference_admission_total{decision="accepted",reason="",task="a"} 3.0',
        'inference_admission_total{decision="refused",reason="full",task="a"} 2.0',
        'inference_attempts_total{outcome="completed",task="a"} 2.0',
        'inference_worker_restarts_total{reason="crash",task="a"} 1.0',
        'inference_stale_commits_total{task="a"} 1.0',
        'inference_latency_seconds_bucket{le="0.045",task="a"} 2.0',
        'inference_latency_seconds_count{task="a"} 3.0',
        'inference_queue_wait_seconds_sum{task="a"} 0.5',
        'inference_batch_size_bucket{le="16.0",task="a"} 1.0',
        'inference_batch_size_bucket{le="8.0",task="a"} 0.0',
        'inference_eta_error_seconds_count{task="a"} 1.0',
        'inference_bounds_reached_total{bound="lines_max"} 1.0',
        'inference_worker_up{worker="w"} 0.0',
    ):
        assert line in text.decode().splitlines(), line


def test_scrapes_close_together_share_one_text():
    now = Turning()
    meters = Exposition(["a"], now=now)
    first, _ = meters.render()
    meters.for_task("a").arrived(1)
    assert meters.render()[0] == first
    now.at += RENDER_FRESH_S * 2
    assert b'inference_arrivals_total{task="a"} 1.0' in meters.render()[0]


def test_a_meter_is_made_once():
    meters = Meters()
    assert meters.for_task("a") is meters.for_task("a")


def test_a_scrape_says_which_variant_of_a_task_runs_and_how_many_results_were_made_by_it():
    lines = []
    meters = Exposition(["a"], now=Turning())
    log = Seldom(SimpleNamespace(warning=lambda event, **more: lines.append((event, more))), now=Turning())
    facts = LaneMeters(meters, log)
    facts.moved("a", 1, Moved(0, 1, 100.0, 0.812, 0.0))
    done = Ended(Request(Job("j", "a", b"1", 90.0, 90.0, deadline_at=120.0), 1), End.DONE, b"1")
    done.request.level = 1
    facts.answered(done, 100.0)
    text, _ = meters.render()
    for line in ('inference_level{task="a"} 1.0', 'inference_degraded_total{level="variant_1"} 1.0'):
        assert line in text.decode().splitlines(), line
    facts.moved("a", 0, Moved(1, 0, 101.0, 0.1, 0.2))
    assert lines == [
        ("degrading", {"task": "a", "level": 1, "fill": 0.81}),
        ("recovering", {"task": "a", "level": 0, "fill": 0.1}),
    ]


def test_families_of_others_are_shown_beside_ours_and_the_same_sample_once():
    degraded = CounterMetricFamily("inference_degraded", "Of others", labels=["level"])
    degraded.add_metric(["fallback"], 4)
    length = GaugeMetricFamily("inference_queue_length", "Of others", labels=["task"])
    length.add_metric(["door/Detect"], 3)
    dropped = CounterMetricFamily("inference_dropped", "Only of others", labels=["stream", "reason"])
    dropped.add_metric(["door/cam", "late"], 2)
    meters = Exposition(
        ["a"],
        now=lambda: 1.0,
        depths=lambda: {"a": Depth(queued=6)},
        more=lambda: [degraded, length, dropped],
    )
    text = meters.render()[0].decode()
    assert 'inference_queue_length{task="a"} 6.0' in text
    assert 'inference_queue_length{task="door/Detect"} 3.0' in text
    assert 'inference_degraded_total{level="fallback"} 4.0' in text
    assert 'inference_dropped_total{reason="late",stream="door/cam"} 2.0' in text
    samples = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    assert text.count("# TYPE inference_queue_length gauge") == 1
    twice = [Sample("x", {"a": "1"}, 2.0), Sample("x", {"a": "1"}, 3.0), Sample("x", {"a": "2"}, 1.0)]
    assert [one.value for one in added(twice)] == [5.0, 1.0]


def test_a_scrape_says_how_the_gate_of_an_upstream_stands_and_each_change_is_a_line_with_its_reason():
    now, lines = Turning(), []
    log = SimpleNamespace(warning=lambda event, **fields: lines.append((event, fields)))
    exposition = Exposition(["a"], now=now)
    facts = LaneMeters(exposition, Seldom(log, now=now))

    def shown():
        now.at += RENDER_FRESH_S * 2
        return [
            line
            for line in exposition.render()[0].decode().splitlines()
            if line.startswith("inference_upstream")
        ]

    facts.gated("a", "open", None, "")
    assert shown() == ['inference_upstream_gate_closed{task="a"} 0.0']
    facts.gated("a", "closed", 12.0, "12 (closes at 10)")
    facts.gated("a", "closed", 11.0, "")
    assert shown() == [
        'inference_upstream_gate_closed{task="a"} 1.0',
        'inference_upstream_saturation{task="a"} 11.0',
    ]
    facts.gated("a", "blind", None, "no value for 10 s: gone")
    assert shown() == ['inference_upstream_gate_closed{task="a"} 0.0']
    assert lines == [
        ("gate_closed", {"task": "a", "value": 12.0, "reason": "12 (closes at 10)"}),
        ("gate_blind", {"task": "a", "value": None, "reason": "no value for 10 s: gone"}),
    ]


def test_a_scrape_says_of_a_breaker_inside_handlers_how_it_stands_for_each_task_that_uses_it():
    meters = Meters(["look_up", "Rank"])
    lane = LaneMeters(meters, SimpleNamespace(warning=lambda *_, **__: None))
    lane.breaker("n/(functions)/0", "features", "closed", 0, "", ["look_up"])
    lane.breaker("n/(functions)/1", "features", "open", 1, "2 bad calls", [])
    lane.breaker("n/(functions)/2", "features", "half_open", 0, "it may try", [])
    lane.breaker("n/Rank/0", "features", "closed", 0, "", ["Rank"])
    lane.breaker("n/(functions)/0", "unused", "open", 1, "", [])

    def seen():
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in guarding(meters)
            for sample in family.samples
            if sample.name.startswith("inference_task_breaker")
        }

    state, opened = "inference_task_breaker_state", "inference_task_breaker_open_workers"
    found = {
        (state, "look_up", "features"): 2.0, (opened, "look_up", "features"): 1.0,
        (state, "Rank", "features"): 0.0, (opened, "Rank", "features"): 0.0,
    }  # fmt: skip
    assert seen() == found
    lane.breakers_gone("n/(functions)/1")
    assert seen()[(state, "look_up", "features")] == 1.0
    for number in range(2 * BREAKERS_MAX):
        lane.breaker("n/Rank/0", f"b{number}", "closed", 0, "", [f"t{number}"])
    assert len(seen()) <= 2 * BREAKERS_MAX and meters.bounds["BREAKERS_MAX"]
