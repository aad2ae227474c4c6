"""A dead letter of a real crash tells how its process died, what was printed, and who ran beside it."""

import pytest

from tests.e2e.harness import SHORT, Served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


def test_a_crash_leaves_its_signal_its_last_words_and_its_mates(tmp_path):
    with Served(tmp_path, "deadly.py", workers=1, env=SHORT) as server:
        lines = [
            {"task": "Brittle", "payload": [name, name == "deadly"]} for name in ("a", "deadly", "b", "c")
        ]
        ids = [verdict["job_id"] for verdict in server.submit_many(lines)]
        deadly = ids[1]
        records = server.finals(ids, 60.0)
        assert [records[one]["status"] for one in ids] == ["COMPLETED", "FAILED", "COMPLETED", "COMPLETED"]
        letter = server.get(f"/v1/dead-letters/{deadly}").json
        assert letter["cause"] == "poison", letter
        assert "SIGSEGV" in letter["error"]["message"] and letter["error"]["code"] == "worker_lost"
        assert letter["log_tail"][0] == "working on deadly", "its last try was alone"
        assert any("Segmentation fault" in line for line in letter["log_tail"])
        assert set(letter["batch_mates"]) == set(ids) - {deadly}
        first, last = letter["attempts"][0], letter["attempts"][-1]
        assert first["outcome"] == "suspected"
        assert last["outcome"] == "exhausted" and last["worker"] and "SIGSEGV" in last["error"]["message"]
        assert server.stop() == 0


def test_an_exception_leaves_what_its_own_try_printed(tmp_path):
    with Served(tmp_path, "deadly.py", workers=1, env=SHORT) as server:
        for word in ("good", "fine"):
            server.final(server.submit("talk", word)["job_id"])
        job_id = server.submit("talk", "bad")["job_id"]
        assert server.final(job_id)["status"] == "FAILED"
        letter = server.get(f"/v1/dead-letters/{job_id}").json
        assert (
            letter["log_tail"][0] == "thinking about bad"
            and "good" not in letter["log_tail"]
            and letter["batch_mates"] == []
        )
        assert (letter["cause"], letter["error"]["type"]) == ("transient", "ValueError")
        server.stop()
