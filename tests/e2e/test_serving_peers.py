"""What bench/serving_peers.py plays and says: a second of a level with the project's own packages."""

import socket
import subprocess
from dataclasses import replace

import pytest

from bench import openloop
from bench import serving_peers as bench
from bench.openloop import Due, OpenLoop, whole
from bench.serving_rows import ROWS
from bench.serving_tables import tables

BY_NAME = {row.name: row for row in ROWS}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forebay", "fastapi-tuned"])
def test_a_row_answers_some_of_twice_its_capacity_and_tells_the_others_when_to_come_back(name):
    row = replace(BY_NAME[name], venv="")
    found = bench.measure(row, lambda row: bench.level(row, 2.0, 1.0), {})
    assert found["statuses"]["200"] > 50 and found["told"] > 50 and found["untold"] == 0, found
    assert found["rss_mb"] > 20 and 0 <= found["recovery_s"] <= found["watched_s"], found
    assert f"| {name} | {found['goodput']:.3f} |" in tables({"levels 2x": {name: found}})


def test_a_peer_that_cannot_be_installed_or_does_not_start_stands_in_the_table_with_what_it_said(monkeypatch):
    def environment(name):
        raise subprocess.CalledProcessError(1, [f"/somewhere/{name}/bin/pip", "install"])

    monkeypatch.setattr(bench, "environment", environment)
    ended = replace(
        BY_NAME["fastapi"], venv="", command=("python", "-c", "raise SystemExit('no device here')")
    )
    away = BY_NAME["mosec"]
    failed = bench.prepared([ended, away])
    results = {
        row.name: bench.measure(row, lambda row: bench.level(row, 2.0, 1.0), failed) for row in (ended, away)
    }
    told = tables({"levels 2x": results})
    assert "| fastapi | did not start: no device here |" in told
    assert "| mosec | not installed: pip ended with 1, which is told on stderr |" in told


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n{"y":1\r\n1;a=b\r\n}\r\n0\r\n\r\n',
        b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"y":1}',
    ],
)
def test_an_answer_is_whole_with_its_last_byte_and_not_before(answer):
    assert all(whole(answer[:count]) is None for count in range(len(answer)))
    assert whole(answer)[1] == b'{"y":1}'


def test_a_generator_of_many_connections_takes_further_addresses_before_its_ports_run_out(monkeypatch):
    monkeypatch.setattr(openloop, "FROM_ONE_ADDRESS_MAX", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        OpenLoop(server.getsockname()[1], give_up_s=0.05).run([Due(0.0, b"GET / HTTP/1.1\r\n\r\n")] * 5)
        sources = []
        for _ in range(5):
            connection, (address, _) = server.accept()
            connection.close()
            sources.append(address)
    assert sorted(sources) == ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.3"]
