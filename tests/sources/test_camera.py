"""Live sources: the newest frame, a connection that comes back, and what is asked of a camera by the basin."""

import threading

import pytest

from forebay import Backoff, sources
from forebay.errors import ConfigError, InvalidError
from forebay.sources.failures import SourceError, SourceStalledError
from forebay.sources.newest import Newest
from forebay.streams.ports import Captured, Pressure, Source
from tests.sources.cameras import Camera
from tests.waiting import until

AT_ONCE = Backoff("1ms", cap="2ms")


class Script:
    """A connection that does what its scripts say, one for each try: gives frames, raises, waits."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.tries = 0

    def __call__(self):
        script = self.scripts[min(self.tries, len(self.scripts) - 1)]
        self.tries += 1
        return self._run(script)

    def _run(self, script):
        for step in script:
            if isinstance(step, threading.Event):
                assert step.wait(30)
            elif isinstance(step, Exception):
                raise step
            else:
                yield step


def camera_of(*scripts, **settings):
    script = Script(*scripts)
    return sources.reconnecting(script, **({"stream": "door", "backoff": AT_ONCE} | settings)), script


def test_it_satisfies_what_a_pipeline_asks():
    camera, _ = camera_of([])
    assert isinstance(camera, Source) and camera.live


def test_it_gives_the_newest_frame_and_counts_those_it_skipped():
    more, read = threading.Event(), threading.Event()
    camera, _ = camera_of([b"0", more, *(b"%d" % n for n in range(1, 10)), read, b"10"], ends=True)
    frames = iter(camera)
    assert next(frames).pixels == b"0"
    more.set()
    until(lambda: camera.counts()["frames"] == 10, 10, "all frames came in")
    assert next(frames).pixels == b"9"
    read.set()
    assert [one.pixels for one in frames] == [b"10"]
    assert camera.counts()["skipped"] == 8
    assert camera.state == "ended"


def test_after_any_loss_it_connects_again_and_counts_how_it_was_lost():
    camera, script = camera_of(
        [b"a", OSError("reset")],
        [ConnectionRefusedError("no")],
        [SourceStalledError("silent")],
        [b"b", SourceStalledError("silent")],
        [b"c", EOFError("eof")],
        [b"d"],
        [b"e", threading.Event()],
    )
    seen = []
    for one in camera:
        seen.append(one.pixels)
        if one.pixels == b"e":
            camera.close()
            script.scripts[-1][1].set()
    assert seen[-1] == b"e"
    counts = camera.counts()
    assert (counts["lost_broken"], counts["lost_refused"], counts["lost_stalled"], counts["lost_ended"]) == (
        2,
        1,
        2,
        1,
    )
    assert counts["reconnects"] == 4
    assert counts["frames"] == len(seen) + counts["skipped"] == 5


def test_it_says_why_it_was_lost_and_where_it_stands():
    camera, _ = camera_of([b"a", OSError("cable pulled")], backoff=Backoff("60s", cap="60s"))
    frames = iter(camera)
    assert camera.state == "connecting"
    next(frames)
    until(lambda: camera.state == "waiting", 10, "it waits for its next try")
    assert camera.says == "cable pulled"
    assert 30 <= camera.waited_s <= 60
    camera.close()
    assert list(frames) == []


def test_it_is_given_up_with_the_last_reason_after_the_last_frame_was_given():
    camera, _ = camera_of([b"a", OSError("gone")], [OSError("nobody home")], give_up="50ms")
    frames = iter(camera)
    assert next(frames).pixels == b"a"
    with pytest.raises(SourceError, match="door: given up after 0 s without a frame: nobody home"):
        list(frames)
    assert camera.state == "failed"


@pytest.mark.parametrize("error", [ValueError("mine"), ConfigError("no extra"), InvalidError("wrong field")])
def test_what_no_try_more_would_change_ends_the_stream_at_once(error):
    camera, script = camera_of([b"a", error])
    with pytest.raises(type(error), match=str(error)):
        list(camera)
    assert script.tries == 1


def test_close_ends_a_wait_of_the_reader_and_of_the_backoff_at_once():
    camera, _ = camera_of([OSError("no")], backoff=Backoff("60s", cap="60s"))
    got = []
    reader = threading.Thread(target=lambda: got.extend(camera))
    reader.start()
    until(lambda: camera.state == "waiting", 10, "the first try failed")
    camera.close()
    reader.join(10)
    camera._thread.join(10)
    assert not reader.is_alive() and not camera._thread.is_alive() and got == []


def test_every_nth_frame_is_read_where_frames_are_decimated():
    go = threading.Event()
    camera, _ = camera_of([b"0", go, *(b"x" for _ in range(30))], ends=True)
    frames = iter(camera)
    next(frames)
    camera.press(Pressure("door", 4, every=3))
    go.set()
    list(frames)
    counts = camera.counts()
    assert counts["decimated"] == 20
    assert counts["frames"] == 11


def test_who_is_told_to_hold_off_sends_nothing_meanwhile():
    go, later = threading.Event(), threading.Event()
    camera, _ = camera_of([b"0", go, b"1", b"2", later, b"3"], ends=True)
    frames = iter(camera)
    next(frames)
    camera.press(Pressure("door", 0, retry_after_s=60.0))
    go.set()
    until(lambda: camera.counts()["held_off"] == 2, 10, "both were held off")
    camera.press(Pressure("door", 5))
    later.set()
    assert [one.pixels for one in frames] == [b"3"]


def test_it_is_iterated_once():
    camera, _ = camera_of([b"0"], ends=True)
    list(camera)
    with pytest.raises(InvalidError, match="iterated once"):
        list(camera)


def test_of_many_streams_each_keeps_its_newest_and_its_turn():
    newest = Newest()
    replaced = [newest.put(Captured(n, stream, 0.0)) for n, stream in enumerate("abacab")]
    newest.end()
    assert replaced == [0, 0, 1, 0, 1, 1]
    assert [(one.stream, one.pixels) for one in newest] == [("a", 4), ("b", 5), ("c", 3)]
    assert newest.put(Captured(9, "a", 0.0)) == 1


@pytest.fixture
def door():
    camera = Camera()
    yield camera
    camera.kill()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("by", ["ffmpeg", "av"])
def test_a_network_camera_is_read_through_a_cut_a_power_failure_and_a_silence(door, by):
    camera = sources.rtsp(door.url, by=by, stall="4s", backoff=Backoff("50ms", cap="500ms"), give_up="10m")
    frames = iter(camera)
    assert next(frames).pixels.shape == (48, 64, 3)
    assert camera.state == "streaming"

    def back():
        reconnects = camera.counts()["reconnects"]
        return lambda: camera.counts()["reconnects"] > reconnects

    door.cut()
    until(lambda: camera.counts()["lost_ended"] + camera.counts()["lost_broken"], 60, "the cut was seen")
    until(lambda: camera.counts()["reconnects"], 60, "back after the cut")

    door.kill()
    until(lambda: camera.counts()["lost_refused"], 60, "it is refused")
    again = back()
    door.start()
    until(again, 60, "back after the power failure")

    stalled = camera.counts()["lost_stalled"]
    door.silent.set()
    until(lambda: camera.counts()["lost_stalled"] > stalled, 60, "the silence was seen")
    again = back()
    door.silent.clear()
    until(again, 60, "back after the silence")

    one = next(frames)
    assert one.pixels.shape == (48, 64, 3)
    assert camera.clock.now() - one.captured_at < 30  # nothing old was kept in the network
    camera.close()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"address": "clip.mp4"}, "address must begin with rtsp://"),
        ({"address": 3}, "address"),
        ({"by": "opencv"}, "by must be ffmpeg or av"),
        ({"transport": "pigeon"}, "transport must be tcp or udp"),
        ({"stall": 0}, "stall must be above zero"),
        ({"give_up": -1}, "give_up"),
        ({"stream": ""}, "stream must be"),
        ({"size": "big"}, "size must be"),
    ],
)
def test_a_wrong_argument_of_a_network_camera_is_named(arguments, field):
    with pytest.raises(InvalidError, match=field):
        sources.rtsp(**({"address": "rtsp://127.0.0.1/x"} | arguments))
