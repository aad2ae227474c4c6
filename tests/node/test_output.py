"""What a worker prints reaches the server's log, bounded."""

from forebay.node.log_tail import LogTail
from forebay.observe.echo import LINES_PER_S_MAX, Echo


class Lines:
    def __init__(self):
        self.said = []

    def info(self, event, **fields):
        self.said.append((event, fields))

    warning = info


def test_every_whole_line_is_passed_on_once():
    heard, tail = [], LogTail()
    tail.sink = heard.append
    tail.feed(b"one\ntw")
    tail.feed(b"o\nthree")
    assert heard == ["one", "two"]


def test_a_flood_is_cut_and_the_cut_is_said():
    log, second = Lines(), [5.0]
    echo = Echo(log, now=lambda: second[0])
    for number in range(LINES_PER_S_MAX + 7):
        echo.line("w/1", str(number))
    assert len(log.said) == LINES_PER_S_MAX
    second[0] = 6.0
    echo.line("w/1", "later")
    assert log.said[-2] == ("worker_output_cut", {"lines": 7, "per_s_max": LINES_PER_S_MAX})
    assert log.said[-1] == ("worker_output", {"worker": "w/1", "line": "later"})


def test_evidence_is_what_was_printed_since_it_was_asked_last_and_only_where_something_failed():
    tail = LogTail()
    tail.feed(b"of the first\nhalf of the fi")
    assert tail.evidence(failed=False) == ""
    tail.feed(b"rst\nof the second\nunfinished")
    assert tail.evidence(failed=True) == "of the second\nunfinished"
    assert tail.evidence(failed=True) == ""
    tail.feed(b" still\n")
    assert tail.evidence(failed=True) == ""


def test_evidence_reads_first_what_still_lies_in_the_pipe():
    tail = LogTail()
    tail.pull = lambda: tail.feed(b"late\n")
    assert tail.evidence(failed=True) == "late"


def test_evidence_of_a_flood_is_no_more_than_the_tail():
    tail = LogTail()
    tail.feed(b"".join(b"%d\n" % n for n in range(1000)))
    assert tail.evidence(failed=True).splitlines()[0] == "800"
