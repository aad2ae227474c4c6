"""Numbers of frames and cameras that others have measured or promised, each under its own name."""

import queue

import numpy
import pytest

import forebay
from forebay.core.accounts import ALERT_SHARE, Accounts
from forebay.core.buffer import Backoff, Reason
from forebay.core.gate import GateTerms
from forebay.core.ladder import Ladder, Step, thresholds
from forebay.core.lanes import Ticket
from forebay.core.rtc_stats import join, read_stats
from forebay.errors import NoMemoryError
from forebay.node.limits import default_workers
from forebay.observe.meters import SECONDS_BOUNDS
from forebay.pipeline import Pipeline, Queue, Stage
from forebay.sim.frames import Camera, FrameWorld
from forebay.streams import FrameQueue

WHOLE_S, THROTTLED_S = 1 / 4_000, 1 / 1_400  # one frame on the GPU of the incident, and under its CPU quota


def played(per_s, each_s, *, seconds=3.0, deadline_s=float("inf"), **terms):
    """Return the account of one camera before one replica."""
    camera = Camera(stream="cam", per_s=per_s, until_s=seconds)
    world = FrameWorld(
        [camera], GateTerms(**terms), lambda scales: each_s * len(scales), deadline_s=deadline_s
    )
    return world.run().streams["cam"]


def test_m1_spikes_above_200_ms_are_those_of_a_bound_of_300_and_are_gone_with_a_deadline_of_45():
    baseline = played(3_600, WHOLE_S, items_max=300, policy="drop_newest")
    assert baseline.latency.quantile(0.5) <= 0.045
    incident = played(5_000, THROTTLED_S, items_max=300, policy="drop_newest")
    assert incident.latency.quantile(0.95) > 0.2
    removed = played(5_000, THROTTLED_S, items_max=300, policy="drop_oldest", deadline_s=0.045)
    assert removed.latency.quantile(0.99) <= 0.047
    assert incident.served - 300 <= 1.02 * removed.served  # but for those 300 at the end it costs no frame


def test_m2_a_queue_that_keeps_its_aim_of_45_ms_holds_fewer_than_50_where_the_incident_had_500():
    aimed = forebay.Queue.sized(peak_per_s=1_000, wait_max="40ms").terms.items_max
    assert aimed <= 50
    camera = Camera(stream="cam", per_s=1_000, until_s=3.0)
    world = FrameWorld([camera], GateTerms(items_max=500, policy="drop_newest"), lambda scales: 1 / 900)
    world.run()
    assert world.accounts.streams["cam"].latency.quantile(0.99) > 0.2


def test_m3_a_queue_of_300_never_holds_342_and_tells_who_waits_before_it():
    accounts, queued = Accounts(), 0
    world = FrameWorld([], GateTerms(items_max=300), lambda scales: 1.0)
    waiting = []
    for _ in range(342):
        ticket = Ticket("cam", accounts.open("cam"), 0.0)
        let = world.gate.offer(ticket, now=0.0)
        queued += let.entered
        waiting += [] if let.entered or let.reason is not None else [ticket]
    assert (queued, world.gate.depth, len(waiting)) == (300, 300, 42)


def test_m10_replicas_are_the_gpus_unless_the_environment_says_so(tmp_path):
    for number in range(4):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / f"nvidia{number}").touch()
    assert default_workers({}, root=tmp_path, affinity=8) == 4
    assert default_workers({"WORKER_CONCURRENCY": "1"}, root=tmp_path, affinity=8) == 1


def test_m11_m12_dropping_from_900_and_degrading_from_950_are_exchanged_so_that_both_happen():
    marks = thresholds(1_000, drop=900, degrade=950)
    assert (marks.degrade_at, marks.drop_at) == (0.9, 0.95)
    ladder = Ladder((Step(marks.degrade_at, scale=0.5),))
    assert [ladder.see(depth / 1_000) for depth in (899, 900, 950)] == [0, 1, 1]


def test_m14_a_latency_of_45_ms_is_a_bound_of_the_histogram():
    assert 0.045 in SECONDS_BOUNDS


def test_m17_two_frames_of_three_thousand_are_no_alert_and_three_are():
    sender = [{"type": "outbound-rtp", "kind": "video", "framesEncoded": 3_000, "framesSent": 2_998}]
    found = join(read_stats(sender), None, offered=2_998, served=2_998, dropped={})
    assert found.lost == 2
    for dropped, alert in ((2, False), (3, True)):
        accounts = Accounts()
        for number in range(3_000):
            ticket = Ticket("cam", accounts.open("cam"), 0.0)
            if number < dropped:
                accounts.drop(ticket, Reason.LATE)
            else:
                accounts.serve(ticket, now=0.0)
        stream = accounts.streams["cam"]
        assert stream.drop_share == pytest.approx(dropped / 3_000)
        assert stream.alert is alert, f"{ALERT_SHARE:.1%} is the bound"


def test_m40_fifteen_cameras_lose_two_fifths_before_and_two_percent_after():
    cameras = [Camera(stream=f"cam-{number}", per_s=30.0, until_s=20.0) for number in range(15)]

    def model(scales):
        return 0.0003 + sum(0.0037 * scale * scale for scale in scales)

    before = FrameWorld(cameras, GateTerms(items_max=300, policy="drop_newest"), model).run()
    ladder = (Step(0.25, scale=0.5), Step(0.5, scale=0.25))
    terms = GateTerms(items_max=64, policy=Backoff("50ms", cap="1s"), ladder=ladder)
    after = FrameWorld(cameras, terms, model).run()
    lost = [
        sum(one.lost for one in accounts.streams.values())
        / sum(one.sent for one in accounts.streams.values())
        for accounts in (before, after)
    ]
    assert lost[0] >= 0.4 and lost[1] <= 0.02
    assert max(one.latency.quantile(0.99) for one in after.streams.values()) < 0.3


def test_m43_a_stage_of_64_waits_500_ms_from_50_ms_to_1_s_and_opens_at_3_failures_in_5_s():
    backoff = Backoff("50ms", cap="1s")
    stage = Stage(
        abs,
        queue=Queue(64, put_timeout="500ms", on_full=backoff),
        breaker=forebay.Breaker(failures=3, window="5s"),
    )
    assert (stage.terms.items_max, stage.put_timeout_s) == (64, 0.5)
    assert [backoff.wait_s(tries) for tries in range(1, 7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    calls = []

    def fails(value):
        calls.append(value)
        raise OSError("down")

    made = Stage(fails, breaker=forebay.Breaker(failures=3, window="5s"), fallback=lambda value: "cached")
    report = Pipeline(made).run([numpy.zeros(4, "uint8")] * 10)
    assert len(calls) == 3
    assert (report.stages[0].breaker_trips, report.streams[0].fallback) == (1, 7)


def test_m44_ten_times_the_rate_never_holds_more_frames_or_bytes_than_the_queue():
    size_b = 320 * 240 * 3
    cameras = [
        Camera(stream="calm", per_s=100.0, until_s=9.0, size_b=size_b),
        Camera(stream="spike", per_s=1_000.0, from_s=3.0, until_s=6.0, size_b=size_b),
    ]
    terms = GateTerms(items_max=64, bytes_max=20 * size_b, policy="drop_oldest")
    world = FrameWorld(cameras, terms, lambda scales: 1 / 150)
    most = [0, 0]
    take = world.gate.take

    def watched(*given, **more):
        most[:] = max(most[0], world.gate.depth), max(most[1], world.gate.size_b)
        return take(*given, **more)

    world.gate.take = watched
    accounts = world.run()
    assert 0 < most[0] <= 20 and most[1] <= 20 * size_b
    assert all(one.adds_up for one in accounts.streams.values())
    calm = accounts.streams["calm"]
    assert (
        calm.drop_share < 0.1
    )  # it keeps its half of the replica: 75 of its 100 a second for a third of the time


def test_m47_a_thousand_frames_of_4k_are_refused_with_the_memory_they_take():
    frame = numpy.zeros((2_160, 3_840, 3), "uint8")
    assert frame.nbytes * 30 == pytest.approx(746.5e6, rel=1e-3)  # bytes a second of one such camera
    with pytest.raises(NoMemoryError, match="24,883,200,000 bytes.*the largest that fits is 80"):
        Pipeline(Stage(abs, queue=1_000), bytes_max="2GB").run([frame])


def test_n10_a_queue_of_frames_has_the_methods_of_a_queue_of_multiprocessing_and_the_errors_of_queue():
    frames = FrameQueue(2, shape=(4,), policy="reject")
    try:
        for name in (
            "put",
            "get",
            "put_nowait",
            "get_nowait",
            "qsize",
            "empty",
            "full",
            "close",
            "join_thread",
        ):
            assert callable(getattr(frames, name))
        frames.put(numpy.zeros(4, "uint8"))
        frames.put_nowait(numpy.ones(4, "uint8"))
        assert frames.full() and frames.qsize() == 2
        with pytest.raises(queue.Full):
            frames.put_nowait(numpy.zeros(4, "uint8"))
        with frames.get() as first, frames.get_nowait() as second:
            assert (int(first.array[0]), int(second.array[0])) == (0, 1)
        assert frames.empty()
        with pytest.raises(queue.Empty):
            frames.get_nowait()
    finally:
        frames.close()


def test_n12_what_a_browser_exports_is_read_as_it_is():
    export = {
        "RTCOutboundRTPVideoStream_1": {
            "type": "outbound-rtp", "kind": "video", "framesEncoded": 3_000, "framesSent": 2_998,
        }
    }  # fmt: skip
    assert read_stats(export).counts["sent"] == 2_998
