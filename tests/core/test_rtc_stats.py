"""WebRTC statistics: a browser's counts are read, and joined with ours into one account of every frame."""

import pytest

from forebay.core.rtc_stats import join, read_stats
from forebay.errors import InvalidError

SENDER = [
    {"type": "codec", "id": "C1", "mimeType": "video/VP8"},
    {"type": "media-source", "id": "S1", "kind": "video", "frames": 1_000, "framesPerSecond": 30},
    {
        "type": "outbound-rtp",
        "id": "O1",
        "kind": "video",
        "framesEncoded": 940,
        "framesSent": 930,
        "qualityLimitationDurations": {"none": 20.0, "cpu": 9.5, "bandwidth": 0},
    },
    {"type": "media-source", "id": "S2", "kind": "audio"},
    {"type": "outbound-rtp", "id": "O2", "kind": "audio", "packetsSent": 5_000},
]
RECEIVER = {
    "I1": {
        "type": "inbound-rtp",
        "kind": "video",
        "framesReceived": 900,
        "framesDropped": 30,
        "framesDecoded": 870,
    },
    "I2": {"type": "inbound-rtp", "kind": "audio", "packetsReceived": 5_000},
    "T": {"type": "transport"},
}


def journey(**changed):
    ours = {"offered": 870, "served": 700, "dropped": {"oldest": 120, "late": 40, "full": 0}} | changed
    return join(read_stats(SENDER), read_stats(RECEIVER), **ours)


def test_every_frame_from_the_camera_on_is_accounted_for():
    found = journey()
    assert [(step.name, step.came, step.lost) for step in found.steps] == [
        ("the sender's encoder", 1_000, 60),
        ("the sender's queue", 940, 10),
        ("the network", 930, 30),
        ("the receiver's decoder", 900, 30),
        ("the way into the basin", 870, 0),
        ("the basin", 870, 160),
        ("the models, not answered yet", 870, 0),
    ]
    waiting = found.steps[-1].reasons["waiting"]
    assert found.lost + waiting + 700 == 1_000
    assert found.limited_by == {"cpu": 9.5}


def test_it_says_in_a_sentence_where_most_were_lost():
    assert str(journey()) == "most were lost in the basin: 160 of 870 (18.4%), oldest"
    quiet = journey(served=870, dropped={})
    assert str(quiet) == "most were lost in the sender's encoder: 60 of 1000 (6.0%), not encoded"
    none = join(None, None, offered=5, served=5, dropped={})
    assert str(none) == "no frame was lost on the way"
    assert none.worst is None


def test_with_the_reports_of_one_side_only_what_is_known_is_said():
    names = [step.name for step in join(read_stats(SENDER), None, offered=1, served=1, dropped={}).steps]
    assert names == [
        "the sender's encoder",
        "the sender's queue",
        "the basin",
        "the models, not answered yet",
    ]
    names = [step.name for step in join(None, read_stats(RECEIVER), offered=1, served=1, dropped={}).steps]
    assert names[0] == "the receiver's decoder"


def test_a_frame_on_its_way_between_two_reports_is_not_a_loss_below_zero():
    found = journey(offered=875)
    assert [step.lost for step in found.steps if step.name == "the way into the basin"] == [0]


def test_between_two_reports_only_what_came_in_between_counts():
    before = read_stats(SENDER)
    later = [dict(entry) for entry in SENDER]
    later[1]["frames"] = 1_300
    later[2] |= {"framesEncoded": 1_240, "framesSent": 1_230, "qualityLimitationDurations": {"cpu": 10.0}}
    since = read_stats(later).since(before)
    assert since.counts == {"captured": 300, "encoded": 300, "sent": 300}
    assert since.limited_by == {"cpu": 0.5}


def test_a_count_that_began_anew_is_all_new():
    fresh = [{"type": "outbound-rtp", "kind": "video", "framesSent": 7}]
    assert read_stats(fresh).since(read_stats(SENDER)).counts == {"sent": 7}


def test_of_simulcast_layers_the_largest_counts_once():
    layers = [
        {"type": "outbound-rtp", "kind": "video", "rid": rid, "framesSent": count}
        for rid, count in (("q", 90), ("h", 100), ("f", 40))
    ]
    assert read_stats(layers).counts == {"sent": 100}


@pytest.mark.parametrize(
    "report",
    [
        None,
        [],
        {},
        "x",
        7,
        [1, 2],
        {"a": 1},
        [{"type": "codec"}],
        [{}],
        [{"type": "media-source", "kind": "audio", "frames": 1}],
    ],
)
def test_what_is_no_report_of_video_is_refused_in_one_line(report):
    with pytest.raises(InvalidError, match="report") as caught:
        read_stats(report)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [-1, "7", None, True, float("nan"), float("inf"), 1e300, [1]])
def test_a_count_that_is_none_is_left_out(count):
    report = [{"type": "media-source", "frames": 5}, {"type": "inbound-rtp", "framesReceived": count}]
    assert read_stats(report).counts == {"captured": 5}


def test_a_report_of_boundless_length_is_refused():
    with pytest.raises(InvalidError, match="10000"):
        read_stats([{"type": "codec"}] * 10_001)
