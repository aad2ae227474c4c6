"""Ids carry their row and cannot be forged."""

import re

from forebay.brokers.sqlite import SqlBook
from forebay.brokers.sqlite.ids import IdMint
from forebay.core import settle
from forebay.core.job import Job

NOW = 1_800_000_000.5
FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_ids_have_the_form_of_uuid7_and_grow_even_when_the_clock_falls_back() -> None:
    mint = IdMint(b"s" * 32)
    ids = [mint.new(NOW - step) for step in range(100)]
    assert all(FORM.fullmatch(job_id) for job_id in ids)
    assert ids == sorted(ids)
    assert len(set(ids)) == 100


def test_an_id_tells_its_row_again_and_again() -> None:
    mint = IdMint(b"s" * 32)
    for seq in range(1, 60):
        job_id = mint.new(NOW)
        for _ in range(2):
            assert mint.read(job_id) == (int(NOW * 1000), seq)
        assert mint.text(int(NOW * 1000), seq) == job_id


def test_anything_else_is_no_id() -> None:
    mint, other = IdMint(b"s" * 32), IdMint(b"t" * 32)
    job_id = mint.new(NOW)
    mint.read(job_id)
    digits = "0123456789abcdef"
    wrong = [job_id[:at] + c + job_id[at + 1 :] for at in range(14, 36) for c in digits if c != job_id[at]]
    wrong += [other.new(NOW), job_id.upper(), f" {job_id[1:]}", f"+{job_id[1:]}", job_id + "0", "", "é" * 36]
    wrong += [job_id.replace("-", "_"), "-" * 36, mint.text(int(NOW * 1000), 99)]
    assert [text for text in wrong if mint.read(text) is not None] == []


def test_an_id_of_another_time_is_not_found_although_its_row_is_there() -> None:
    book = SqlBook.in_memory()
    job = Job(book.new_id(NOW), "t", b"{}", NOW, NOW)
    book.enqueue([job], now=NOW)
    seq = 1
    forged = book.shelf.mint.text(int(NOW * 1000) + 1, seq)
    assert book.get(job.id, now=NOW) is not None
    assert book.get(forged, now=NOW) is None
    assert not book.was_purged(forged, now=NOW)


def test_a_purged_id_is_told_from_one_that_nobody_was_given() -> None:
    book = SqlBook.in_memory()
    job = Job(book.new_id(NOW), "t", b"{}", NOW, NOW)
    book.enqueue([job], now=NOW)
    (lease,) = book.lease("t", limit=1, lease_s=1.0, worker="w", now=NOW)
    book.commit([settle.complete(lease, output=b"1", now=NOW)], now=NOW)
    assert book.purge([job.id], limit=1, now=NOW) == 1
    again = SqlBook(book.shelf.connection)
    for each in (book, again):
        assert each.was_purged(job.id, now=NOW)
        assert not each.was_purged(each.new_id(NOW), now=NOW)
        assert not each.was_purged(IdMint(b"other").new(NOW), now=NOW)
    assert again.new_id(NOW) > job.id, "a sequence is not given out again"
