"""`forebay load` against servers that answer, refuse, are slow, cut, or are not there."""

import asyncio
import contextlib
import json
import threading

import pytest

from forebay.cli.edge import run

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
FULL = b"HTTP/1.1 429 Too Many\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


class Server:
    """Answers the n-th request of all with what `answer(n)` returns: bytes, None for never, b"" for a cut."""

    def __init__(self, answer):
        self.answer, self.requests, self.connections = answer, [], 0

    def __enter__(self):
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main()), daemon=True)
        self.thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(30)

    async def main(self):
        self.loop, self.ended, self.tasks = asyncio.get_running_loop(), asyncio.Event(), set()
        server = await asyncio.start_server(self.connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.ready.set()
        await self.ended.wait()
        server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def connection(self, reader, writer):
        self.connections += 1
        self.tasks.add(asyncio.current_task())
        try:
            await self.serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def serve(self, reader, writer):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            self.requests.append((head, await reader.readexactly(length)))
            said = self.answer(len(self.requests))
            if said == b"":
                return
            if said is not None:
                writer.write(said)


def told(capsys):
    return json.loads(capsys.readouterr().out)


def test_all_are_sent_over_connections_that_are_kept_and_counted(capsys):
    with Server(lambda _: OK) as server:
        argv = [
            "load",
            server.url,
            "Shout",
            '"hi"',
            "--rate",
            "200/s",
            "--for",
            "1s",
            "--profile",
            "steady",
            "--json",
        ]
        assert run([*argv, "--deadline", "5s", "--connections", "4", "--api-key", "k-1"]) == 0
        report = told(capsys)
    assert report["due"] == report["good"] == len(server.requests) == 200
    assert report["by_status"] == {"200": 200} and server.connections <= 4
    head, body = server.requests[0]
    assert head.startswith("post /v1/predict/shout http/1.1") and body == b'"hi"'
    assert "authorization: bearer k-1" in head and "x-request-timeout: 5.0" in head


def test_jobs_and_frames_go_to_their_addresses(capsys):
    with Server(lambda _: OK) as server:
        assert run(["load", server.url, "Shout", "1", "--burst", "3", "--jobs"]) == 0
        assert run(["load", server.url, "--stream", "door", "--burst", "2", "--size", "1KB"]) == 0
    heads = [head.split()[:2] for head, _ in server.requests]
    assert heads == [["post", "/v1/jobs"]] * 3 + [["put", "/v1/streams/door"]] * 2
    assert json.loads(server.requests[0][1]) == {"task": "Shout", "payload": 1}
    assert len(server.requests[-1][1]) == 1000
    assert "3, at once" in capsys.readouterr().out


def test_refusals_are_told_apart_and_less_good_than_wanted_is_exit_code_1(capsys):
    with Server(lambda n: OK if n % 2 else FULL) as server:
        argv = ["load", server.url, "T", "--burst", "10", "--json", "--goodput-min", "100000/s"]
        assert run(argv) == 1
        report = told(capsys)
    assert report["by_status"] == {"200": 5, "429": 5} and report["refused_s"]["max"] > 0
    assert report["good"] == 5


def test_what_is_never_answered_is_given_up_and_the_rest_goes_on(capsys):
    with Server(lambda n: None if n == 2 else OK) as server:
        argv = ["load", server.url, "T", "--burst", "5", "--connections", "1", "--give-up", "300ms", "--json"]
        assert run(argv) == 0
        report = told(capsys)
    assert report["by_status"]["gave up"] >= 1 and report["by_status"]["200"] >= 1
    assert sum(report["by_status"].values()) == 5


def test_a_server_that_cuts_or_closes_is_connected_to_again(capsys):
    with Server(lambda n: b"" if n == 1 else LAST) as server:
        assert run(["load", server.url, "T", "--burst", "6", "--connections", "1", "--json"]) == 0
        report = told(capsys)
    assert report["by_status"] == {"200": 5, "cut off": 1} and server.connections >= 6


def test_a_server_that_is_not_there_is_exit_code_1(capsys):
    assert run(["load", "http://127.0.0.1:9", "T", "--burst", "3", "--give-up", "1s", "--json"]) == 1
    assert told(capsys)["by_status"] == {"not reached": 3}


def test_the_report_is_kept_and_a_locust_file_is_python_that_sends_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Server(lambda _: OK) as server:
        assert run(["load", server.url, "T", "--burst", "1", "--save", "r.json"]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["good"] == 1
    assert run(["load", "http://h:1", "T", '{"a": 1}', "--jobs", "--locustfile", "l.py"]) == 0
    text = (tmp_path / "l.py").read_text()
    compile(text, "l.py", "exec")
    assert '"/v1/jobs"' in text and 'b\'{"task": "T"' in text and "retry-after-ms" in text
    assert run(["load", "http://h:1", "T", "--locustfile", "l.py"]) == 1


WRONG = [
    (["T"], "say --rate or --burst"), (["--rate", "1/s"], "say a TASK, or --stream"),
    (["T", "--stream", "s", "--rate", "1/s"], "say a TASK, or --stream"), (["T", "hello", "--rate", "1/s"], "not JSON"),
    (["T", "--rate", "1/s", "--burst", "3"], "--burst and --rate"), (["T", "--rate", "1/s", "--profile", "wave"], "--profile"),
    (["T", "--rate", "1/s", "--profile", "burst"], "go together"), (["T", "--rate", "1/s", "--size", "1KB"], "--size needs"),
    (["T", "--rate", "1000000/s", "--for", "1h"], "more than"), (["T", "--rate", "1/s", "--every", "1s"], "--every needs"),
    (["T", "--burst", "1", "--api-key", "a b"], "api_key"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "said"), WRONG)
def test_what_makes_no_sense_is_exit_code_2(argv, said, capsys):
    assert run(["load", "http://127.0.0.1:9", *argv]) == 2
    assert said in capsys.readouterr().err
