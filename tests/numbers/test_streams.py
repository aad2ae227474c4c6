"""Numbers of frames and cameras that others have measured or promised, each under its own name."""

import queue

import numpy
import pytest

import forebay
from forebay.core.gate import GateTerms
from forebay.core.rtc_stats import read_stats
from forebay.errors import NoMemoryError
from forebay.node.limits import default_workers
from forebay.observe.meters import SECONDS_BOUNDS
from forebay.pipeline import Pipeline, Stage
from forebay.sim.frames import Camera, FrameWorld
from forebay.streams import FrameQueue


def test_m2_a_queue_that_keeps_its_aim_of_45_ms_holds_fewer_than_50_where_the_incident_had_500():
    aimed = forebay.Queue.sized(peak_per_s=1_000, wait_max="40ms").terms.items_max
    assert aimed <= 50
    camera = Camera(stream="cam", per_s=1_000, until_s=3.0)
    world = FrameWorld([camera], GateTerms(items_max=500, policy="drop_newest"), lambda scales: 1 / 900)
    world.run()
    assert world.accounts.streams["cam"].latency.quantile(0.99) > 0.2


def test_m10_replicas_are_the_gpus_unless_the_environment_says_so(tmp_path):
    for number in range(4):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / f"nvidia{number}").touch()
    assert default_workers({}, root=tmp_path, affinity=8) == 4
    assert default_workers({"WORKER_CONCURRENCY": "1"}, root=tmp_path, affinity=8) == 1


def test_m14_a_latency_of_45_ms_is_a_bound_of_the_histogram():
    assert 0.045 in SECONDS_BOUNDS


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
