"""A served application is sized by what it measured, and warns once of limits that contradict each other."""

import json
import re

from forebay.cli.edge import run
from tests.e2e.harness import Served
from tests.waiting import until

SOUND = """
import forebay

app = forebay.App()


@app.task()
def echo(x):
    return x


@app.task(batch_max=8)
class Model:
    def predict(self, items: list):
        return items
"""

TORN = """
import time

import forebay

app = forebay.App()


@app.task(timeout="3.5s", ttl="4s", attempts_max=3)
def hurried(x):
    time.sleep(x)
    return x
"""


def served(tmp_path, text):
    path = tmp_path / "app.py"
    path.write_text(text, encoding="utf-8")
    return Served(tmp_path, path, workers=1)


def metric(server, name):
    found = re.search(rf'^{name}{{task="\w+"}} (\S+)$', server.get("/metrics").body.decode(), re.MULTILINE)
    return None if found is None else float(found[1])


def test_nothing_is_said_of_an_application_with_default_settings(tmp_path):
    with served(tmp_path, SOUND) as server:
        assert server.submit("echo", 1, wait=10)["status"] == "COMPLETED"
        assert "limits_contradict" not in server.log
        server.stop()


def test_a_contradiction_is_said_once_at_the_start_with_the_change_and_found_again_by_size(tmp_path, capsys):
    with served(tmp_path, TORN) as server:
        assert server.submit("hurried", 0.01, wait=10)["status"] == "COMPLETED"
        (line,) = [one for one in server.log.splitlines() if "limits_contradict" in one]
        said = json.loads(line)
        assert (said["level"], said["code"], said["task"]) == ("warning", "ttl_under_timeout", "hurried")
        assert 'ttl="14s"' in said["change"] and "never starts" in said["why"]
        code = run(["size", "--url", f"http://127.0.0.1:{server.port}", "--json"])
        (found,) = json.loads(capsys.readouterr().out)["tasks"]
        assert code == 1 and [one["code"] for one in found["findings"]] == ["ttl_under_timeout"]
        server.stop()


def test_a_burst_is_in_the_metrics_and_sizes_the_task(tmp_path, capsys):
    with served(tmp_path, TORN) as server:
        server.submit_many([{"task": "hurried", "payload": 0.02, "ttl": "1m"}] * 50)
        until(lambda: metric(server, "inference_arrival_rate_p99") == 50.0, 45, "the burst in the metric")
        until(lambda: server.get("/v1/queues/hurried").json["open"] == 0, 45, "an empty queue")
        view = server.get("/v1/queues/hurried").json
        assert view["rates"]["arrivals_max_per_s"] == 50.0 and 10 <= view["depth_peak"] <= 50
        assert metric(server, "inference_queue_length_peak") is not None
        url = f"http://127.0.0.1:{server.port}"
        run(["size", "--url", url, "--task", "hurried", "--wait-max", "200ms", "--json"])
        (found,) = json.loads(capsys.readouterr().out)["tasks"]
        assert found["peak_per_s"] == 50.0 and found["replicas"]["there_are"] == 1
        assert 0.015 < found["service"]["each_s"] + found["service"]["fixed_s"] < 1.0
        send = {"task": "hurried", "payload": 0.02, "ttl": "1m"}
        for budget in ("ci=900/s", "night=900/s"):
            assert server.ask("POST", "/v1/jobs", send, {"Forebay-Budget": budget}).status == 202
        assert run(["size", "--url", url, "--json"]) == 1
        (_, both) = json.loads(capsys.readouterr().out)["tasks"]
        assert "producers may send 1,800/s" in both["findings"][0]["evidence"]
        assert run(["size", "--url", url, "--task", "nobody"]) == 1
        assert "there is no task nobody; there are hurried" in capsys.readouterr().err
        server.stop()
