"""Frames from files by ffmpeg and by PyAV: all of them, whole, in the size asked for; what fails is named."""

import os
import subprocess

import numpy
import pytest

from forebay import sources
from forebay.errors import ConfigError, InvalidError, UnsupportedError
from forebay.sources import asked, decoder, probing
from forebay.sources.clip import asked_of
from forebay.sources.failures import SourceError, SourceStalledError
from forebay.streams.ports import Source

BOTH = pytest.mark.parametrize("make", [sources.ffmpeg, sources.video], ids=["ffmpeg", "av"])


def ffmpeg(*arguments):
    subprocess.run(["ffmpeg", "-nostdin", "-loglevel", "error", "-y", *arguments], check=True, timeout=50)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """30 frames of 64x48 at 30/s, whose brightness grows from frame to frame."""
    path = tmp_path_factory.mktemp("clips") / "grows.mkv"
    raw = b"".join(bytes([8 * number]) * (64 * 48) for number in range(30))
    subprocess.run(
        [
            *("ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "gray"),
            *("-s", "64x48", "-r", "30", "-i", "pipe:0", "-c:v", "ffv1", str(path)),
        ],
        input=raw,
        check=True,
        timeout=50,
    )
    return str(path)


def decoder_of(address, **changed):
    wanted = {
        "size": None,
        "fps": None,
        "pixels": "gray",
        "arguments": (),
        "stall": 10,
        "probe": 10,
    } | changed
    return decoder.Decoder(numpy, asked_of(address, **wanted))


@BOTH
def test_every_frame_comes_out_whole_and_in_order(make, clip):
    source = make(clip, pixels="gray")
    assert isinstance(source, Source) and not source.live
    got = [(one.pixels.shape, int(one.pixels.min()), int(one.pixels.max())) for one in source]
    assert got == [((48, 64), 8 * number, 8 * number) for number in range(30)]
    assert source.counts()["frames"] == 30
    assert source.stream == "grows.mkv"


@BOTH
def test_frames_that_are_kept_are_not_written_over(make, clip):
    kept = [one.pixels for one in make(clip, pixels="gray")]
    assert [int(one[0, 0]) for one in kept] == [8 * number for number in range(30)]


def test_the_memory_of_frames_that_nobody_keeps_is_used_again(clip):
    places = {one.pixels.ctypes.data for one in sources.ffmpeg(clip)}
    assert len(places) <= 3


@BOTH
def test_size_layout_and_rate_are_as_asked(make, clip):
    got = [one.pixels.shape for one in make(clip, size="32x16", pixels="bgr24", fps=10)]
    assert set(got) == {(16, 32, 3)}
    assert 9 <= len(got) <= 11


def test_a_film_whose_size_changes_midway_comes_in_its_first_size(tmp_path):
    parts = []
    for number, size in enumerate(("64x48", "96x32")):
        parts.append(tmp_path / f"{number}.ts")
        ffmpeg(
            "-f",
            "lavfi",
            "-i",
            f"color=white:size={size}:rate=10:duration=1",
            "-c:v",
            "mpeg2video",
            str(parts[-1]),
        )
    both = tmp_path / "both.ts"
    both.write_bytes(b"".join(part.read_bytes() for part in parts))
    got = [(one.pixels.shape, int(one.pixels.min())) for one in sources.ffmpeg(str(both), pixels="gray")]
    assert {shape for shape, _ in got} == {(48, 64)}
    assert len(got) >= 15 and min(least for _, least in got) > 200  # none is torn


@BOTH
def test_n11_a_realtime_film_is_no_faster_than_it_says(make, clip):
    source = make(clip, realtime=30)
    started = source.clock.now()
    stamps = [one.captured_at for one in source]
    assert stamps[-1] - started >= 29 / 30 - 0.001


@BOTH
@pytest.mark.parametrize("content", [None, b"", b"this is no film" * 100])
def test_what_is_no_film_is_one_line_that_names_it(make, tmp_path, content):
    path = tmp_path / "film.mp4"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=r"film\.mp4: ") as caught:
        list(make(str(path)))
    assert "\n" not in str(caught.value)


@BOTH
def test_a_film_without_pictures_says_so(make, tmp_path):
    path = tmp_path / "song.wav"
    ffmpeg("-f", "lavfi", "-i", "sine=duration=1", str(path))
    with pytest.raises(SourceError, match="there is no video in it"):
        make(str(path))


@BOTH
def test_a_password_is_in_no_message(make):
    with pytest.raises(SourceError) as caught:
        list(make("rtsp://me:secret@127.0.0.1:1/x", size="8x8"))
    assert "secret" not in str(caught.value) and "***@127.0.0.1" in str(caught.value)


def test_without_ffmpeg_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError) as caught:
        sources.ffmpeg("film.mp4")
    assert str(caught.value) == (
        "ffprobe is not installed: apt-get install ffmpeg, or use forebay.sources.video"
        " (pip install 'forebay[video]')"
    )


def test_without_the_extra_one_line_names_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ConfigError, match=r"needs the extra `video`: pip install 'forebay\[video\]'"):
        sources.video("film.mp4")


def test_an_ffmpeg_that_is_killed_is_seen_and_named():
    frames = decoder_of("color=size=64x48", size="64x48", arguments=("-f", "lavfi"))
    with pytest.raises(SourceError, match=r"ffmpeg was killed by SIGKILL after \d+ frames"):
        for _ in frames:
            if frames.frames == 20:
                os.kill(frames.pid, 9)
    assert frames.frames >= 20
    assert not os.path.exists(f"/proc/{frames.pid}")


def test_an_ffmpeg_that_stands_still_is_ended_after_stall(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)  # open, and silent
    try:
        frames = decoder_of(
            str(pipe),
            size="8x8",
            stall=0.1,
            probe=0.1,
            arguments=("-f", "rawvideo", "-s", "8x8", "-pix_fmt", "gray"),
        )
        with pytest.raises(SourceStalledError, match=r"no whole frame in 0\.2 s, after 0"):
            list(frames)
        assert not os.path.exists(f"/proc/{frames.pid}")
    finally:
        os.close(writer)


def test_a_damaged_film_gives_what_is_whole_and_says_what_was_damaged(tmp_path):
    path = tmp_path / "damaged.ts"
    ffmpeg("-f", "lavfi", "-i", "testsrc=size=64x48:rate=25:duration=2", "-c:v", "mpeg2video", str(path))
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 3, len(data) // 2, 50):
        data[at] ^= 0x55
    path.write_bytes(data)
    source = sources.ffmpeg(str(path))
    assert len(list(source)) > 10
    assert source.counts()["complaints"] > 0


def test_close_ends_it_and_leaves_no_process(clip):
    source = sources.ffmpeg(clip)
    frames = iter(source)
    next(frames)
    pid = source._frames.pid
    source.close()
    list(frames)
    assert not os.path.exists(f"/proc/{pid}")


def test_a_reader_that_leaves_in_the_middle_leaves_no_process(clip):
    source = sources.ffmpeg(clip)
    for _ in source:
        pid = source._frames.pid
        break
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("size", value) for value in ("640", "0x5", (0, 5), (5,), (5, 5, 5), "99999x1", 3, (1.5, 2))),
        *(("fps", value) for value in (0, -3, "x", True)),
        *(("pixels", value) for value in ("yuv", None, 3)),
        *(("stall", value) for value in (0, -1, "soon", float("inf"))),
        *(("probe", value) for value in (0, "x")),
        *(("realtime", value) for value in (0, "x")),
        *(("stream", value) for value in ("", "a/b")),
    ],
)
def test_a_wrong_argument_is_named(argument, value, clip):
    with pytest.raises(InvalidError, match=argument) as caught:
        sources.ffmpeg(clip, **{argument: value})
    assert "\n" not in str(caught.value)


def test_what_lies_on_its_side_is_measured_as_it_is_shown():
    text = '{"streams": [{"width": 640, "height": 480, "avg_frame_rate": "30000/1001", "side_data_list": [{"rotation": -90}]}]}'
    found = probing.parse(text.encode(), "x")
    assert (found.width, found.height) == (480, 640)
    assert found.fps == pytest.approx(29.97, abs=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"streams": []}',
        '{"streams": [{}]}',
        '{"streams": [{"width": "x", "height": 1}]}',
        "null",
    ],
)
def test_what_ffprobe_does_not_say_is_no_video(text):
    with pytest.raises(SourceError, match="there is no video in it"):
        probing.parse(text.encode(), "x")


@pytest.mark.parametrize("side", [0, -1, 10**9])
def test_a_size_that_is_none_is_refused_before_memory_is_asked_for(side):
    with pytest.raises(SourceError, match="is no size of a frame"):
        probing.parse(b'{"streams": [{"width": %d, "height": 5}]}' % side, "x")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("clip.mp4", "clip.mp4"),
        ("/films/long name (2).mkv", "long-name-2-.mkv"),
        ("rtsp://u:p@h:554/cam/1?x=y", "1"),
        ("rtsp://h", "stream"),
        ("///", "stream"),
        ("rtsp://[h/x", "stream"),
        ("x" * 300, "x" * 64),
    ],
)
def test_a_stream_is_named_for_its_address(address, name):
    assert asked.name_of(address) == name
    assert asked.stream_name(name) == name


def test_where_a_user_may_have_no_larger_pipe_frames_are_whole_all_the_same(monkeypatch, clip):
    def refused(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(decoder.fcntl, "fcntl", refused)
    assert [int(one.pixels[0, 0]) for one in sources.ffmpeg(clip, pixels="gray")] == [
        8 * n for n in range(30)
    ]
