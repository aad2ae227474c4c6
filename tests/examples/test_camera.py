"""The cameras' example, run for real: the detector sees who is there, small and large, and every frame is accounted."""

# ruff: noqa: E402 - the examples are found only after their folder was put on the path

import importlib.util
import os
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
IN_MODELS_LANE = os.environ.get("TEST_LANE") == "models"  # there, something missing is a failure

missing = [name for name in ("cv2", "matplotlib", "numpy") if importlib.util.find_spec(name) is None]
if missing and not IN_MODELS_LANE:
    pytest.skip(
        f"not installed: {', '.join(missing)}; pip install -r examples/requirements.txt",
        allow_module_level=True,
    )

sys.path.insert(0, str(EXAMPLES))

import camera
import cv2

import forebay

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return camera.frames_of(camera.draw_film(tmp_path_factory.mktemp("film") / "crowd.mp4"))


@pytest.fixture(scope="module")
def detector():
    task = camera.DetectFaces()
    task.load(forebay.Device())
    return task


def smaller(frame, factor):
    return cv2.resize(frame, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)


def test_one_face_is_found_where_it_is(film, detector):
    calm, _ = film
    assert len(calm) == camera.CALM_S * camera.FILM_FPS
    for frame in calm[::5]:
        ((left, top, width, height),) = detector.faces(frame)
        assert left + width < 0.25 and top + height < 0.35  # the face wanders in the upper left corner


def test_a_crowd_is_counted_at_full_size_and_at_half(film, detector):
    _, crowd = film
    for frame in crowd[::10]:
        assert 13 <= len(detector.faces(frame)) <= 17
        assert 12 <= len(detector.faces(smaller(frame, 0.5))) <= 17


def test_fifteen_cameras_are_answered_in_full_while_there_is_time(film):
    _, crowd = film
    end = camera.with_pipeline(crowd, camera.Load(15, 1.0, 1.0, 2, deadline_s=200.0))
    assert end.sent == 15
    assert end.found >= 0.8 * end.known > 0


def test_a_crowd_that_is_too_much_is_made_smaller_and_the_newest_are_answered(film):
    _, crowd = film
    load = camera.Load(15, 60.0, 1.0, 2, deadline_s=200.0)  # far more than any two cores can take
    end = camera.with_pipeline(crowd, load)
    assert end.sent == 900
    assert 0 < end.served < end.sent
    assert end.degraded > 0.5
    assert end.found >= 0.7 * end.known


def test_a_plain_queue_answers_too_late(film):
    _, crowd = film
    rate = camera.rate_of(crowd, 2)
    load = camera.Load(
        15, 6 * rate / 15, 1.5, 2, deadline_s=0.3
    )  # six times what was measured: this may be off
    end = camera.without(crowd, load)
    assert end.sent == 15 * load.frames
    assert end.late > 0 and end.p99_s > 0.3
    assert end.loss > 0.2


def test_without_ffmpeg_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="ffmpeg is missing: apt-get install ffmpeg"):
        camera.draw_film(tmp_path / "crowd.mp4")
