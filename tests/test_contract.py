"""The outer contract by its names: commands, options, routes, fields, metrics, settings, Python names. They are fixed."""

import inspect
import re
import tomllib
from pathlib import Path

import msgspec
import pytest
import typer.main

import forebay
from forebay.cli.app import app
from forebay.client.arguments import SubmitOptions
from forebay.config import describe_settings, load_settings
from forebay.core.alerting import ALERTS
from forebay.core.job import Depth
from forebay.observe.machine import MachineMeters
from forebay.observe.metrics import Exposition, Recent
from forebay.pipeline.exposition import Exposition as OfPipeline
from forebay.pipeline.report import Report
from forebay.server.views import JobView, QueueView
from tests.server.doors import call

ROOT = Path(__file__).parents[1]
CLI = typer.main.get_command(app)

# command: its options
COMMANDS = {
    "serve": "--host --port --workers --broker --data --json",
    "api": "--broker --store --json",
    "work": "--broker --store --json",
    "stream": "--source --json",
    "submit": "--rate --concurrency --wait --out --announce --json",
    "jobs ls": "--status --task --json",
    "jobs show": "--json",
    "jobs cancel": "--json",
    "jobs watch": "--json",
    "jobs explain": "--json",
    "dead-letters ls": "--json",
    "dead-letters show": "--json",
    "dead-letters edit": "--json",
    "dead-letters redrive": "--rate --json",
    "dead-letters purge": "--json",
    "queues ls": "--json",
    "queues pause": "--json",
    "queues resume": "--json",
    "queues drain": "--json",
    "top": "--json",
    "size": "--arrivals --peak --service --wait-max --item-size --in --out --for --json",
    "doctor": "--json",
    "load": "--locustfile --json",
    "verify": "--targets --json",
    "deploy compose": "--json",
    "deploy k8s": "--json",
    "deploy aws": "--json",
    "deploy systemd": "--json",
    "chaos": "--fault --json",
    "lint": "--sarif --json",
    "simulate": "--csv --plot --json",
    "conform": "--json",
}

ROUTES = """
POST /v1/jobs | GET /v1/jobs | GET /v1/jobs/{job_id} | DELETE /v1/jobs/{job_id} | GET /v1/jobs/{job_id}/result
GET /v1/jobs/{job_id}/events | POST /v1/predict/{task} | PUT /v1/blobs | GET /v1/blobs/{blob_id}
GET /v1/tasks | GET /v1/tasks/{task} | GET /v1/queues | GET /v1/queues/{task} | POST /v1/queues/{task}/pause
POST /v1/queues/{task}/resume | POST /v1/queues/{task}/drain | GET /v1/dead-letters | GET /v1/dead-letters/{job_id}
POST /v1/dead-letters/redrive | POST /v1/dead-letters/{job_id}/redrive | PATCH /v1/dead-letters/{job_id}
DELETE /v1/dead-letters/{job_id} | GET /v1/workers | GET /v1/streams | GET /healthz | GET /readyz | GET /metrics
GET /openapi.json | GET /docs | GET / | GET /v1/jobs/{job_id}/deliveries | POST /v1/jobs/{job_id}/deliveries/replay
"""

JOB_FIELDS = (
    "job_id task status state created_at started_at finished_at attempt attempts_max priority progress result error "
    "position eta links metadata timeline"
)
QUEUE_FIELDS = "task depth running capacity bytes oldest_age_s rates eta watermarks paused"
SUBMISSION = "task payload priority ttl deadline run_at callback_url ordering_key metadata attempts_max idempotency_key"

# name: labels
METRICS = {
    "inference_queue_length": "task", "inference_latency_seconds": "task", "inference_queue_bytes": "task",
    "inference_queue_capacity": "task", "inference_queue_oldest_age_seconds": "task",
    "inference_queue_wait_seconds": "task", "inference_queue_length_peak": "task", "inference_arrivals_total": "task",
    "inference_arrival_rate_p99": "task", "inference_admission_total": "decision reason",
    "inference_dropped_total": "stream reason", "inference_degraded_total": "level", "inference_batch_size": "task",
    "inference_stage_seconds": "stage", "inference_attempts_total": "outcome", "inference_dead_letters": "task",
    "inference_worker_up": "worker", "inference_worker_restarts_total": "reason",
    "inference_worker_memory_bytes": "worker", "inference_producer_wait_ratio": "", "inference_consumer_idle_ratio": "",
    "inference_breaker_state": "breaker", "inference_breaker_trips_total": "breaker", "inference_eta_error_seconds": "task",
    "inference_slo_good_total": "task", "inference_webhook_deliveries_total": "outcome",
}  # fmt: skip
OF_MACHINES = {
    "inference_cpu_throttled_ratio",
    "inference_gpu_utilization_ratio",
}  # where there is such a thing

PYTHON = {
    "forebay": "App AsyncClient Backoff Blob Breaker Client Context Degrade Device ETA Failed Permanent Pipeline Queue Retry "
    "Scale Stage sources streams",
    "forebay.sources": "ffmpeg iterable kafka push",
    "forebay.streams": "FrameQueue Accepted Dropped",
}
TASK_ARGUMENTS = (
    "batch_max batch_wait timeout attempts_max backoff ttl deadline queue_max queue_bytes_max replicas devices version "
    "priority fallback variants breaker retry_on permanent_on concurrency"
)
CONTEXT = "progress cancelled deadline attempt job_id checkpoint"
CLIENT = "submit map predict get result cancel queues tasks workers"
FRAME_QUEUE = "maxsize shape dtype policy ttl item_bytes_max degrade_at drop_at"

EXTRAS = "redis postgres rabbitmq nats sqs kafka pubsub s3 gcs azure streams video gpu crypto all"
EXTRAS_NOT_YET = {"otel"}
SETTINGS = "WEBHOOK_SECRET WEBHOOKS_ALLOW_PRIVATE DATA BROKER STORE API_KEYS KEYS_FILE URL API_KEY"
ALERTING = (
    "queue_deep queue_nearly_full cpu_throttled breaker_trips queue_over_300 oldest_waits dead_letters_growing stalled "
    "worker_crash_loop disk_nearly_full"
)


def command(words):
    found = CLI
    for word in words.split():
        found = getattr(found, "commands", {}).get(word)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_there_with_its_options(name):
    found = command(name)
    assert found is not None
    options = {one for param in found.params for one in param.opts}
    assert set(COMMANDS[name].split()) - options == set()


def test_every_command_speaks_json():
    def leaves(group, path=()):
        for name, one in group.commands.items():
            if hasattr(one, "commands"):
                yield from leaves(one, (*path, name))
            else:
                yield " ".join((*path, name)), one

    silent = [n for n, one in leaves(CLI) if "--json" not in {o for p in one.params for o in p.opts}]
    assert silent == []


def test_every_route_is_there_and_described():
    async def run(caller):
        paths = (await caller.get("/openapi.json")).json()["paths"]
        have = {f"{verb.upper()} {path}" for path, verbs in paths.items() for verb in verbs}
        wanted = {one.strip() for one in re.split(r"[|\n]", ROUTES) if one.strip()}
        assert wanted - have == set()

    call(run)


@pytest.mark.parametrize("path", ["/openai/v1/models", "/replicate/v1/models", "/v2/health/live"])
def test_the_dialects_are_answered(path):
    async def run(caller):
        assert (await caller.get(path)).status_code == 200

    call(run)


def test_a_job_and_a_queue_have_their_fields_and_lists_their_form():
    fields = {one.encode_name for one in msgspec.structs.fields(JobView)}
    assert set(JOB_FIELDS.split()) - fields == set()
    assert set(QUEUE_FIELDS.split()) - {one.encode_name for one in msgspec.structs.fields(QueueView)} == set()

    async def run(caller):
        caller.front.estimators["echo"].ran(items=1, took_s=10.0)
        await caller.one()
        job = await caller.one()
        assert set(JOB_FIELDS.split()) - set(job) == set()
        assert {"p50_s", "p90_s", "p50_at", "p90_at", "message"} - set(job["eta"]) == set()
        assert {"self", "result", "events"} - set(job["links"]) == set()
        assert job["position"] == 2
        page = (await caller.get("/v1/jobs")).json()
        assert set(page) == {"items", "next_cursor"}
        problem = (await caller.get("/v1/jobs/nobody")).json()
        assert {"type", "title", "status", "detail", "code"} - set(problem) == set()

    call(run)


def test_a_submission_takes_its_fields():
    async def run(caller):
        schema = (await caller.get("/openapi.json")).json()["components"]["schemas"]["SubmissionView"]
        assert set(SUBMISSION.split()) - set(schema["properties"]) == set()

    call(run)


def exposed():
    """Return every name that a server or a pipeline exposes."""
    report = Report(
        pipeline="p", state="running", seconds=1.0, streams=(), stages=(), sink_errors=0, sinks={}
    )
    meters = Exposition(
        ["a"], now=lambda: 1.0, depths=lambda: {"a": Depth()}, recent=Recent.of(["a"]), bounds_of={"a": (1, 1)},
        more=MachineMeters(lambda: 1.0).families,
    )  # fmt: skip
    text = meters.render()[0].decode() + OfPipeline(lambda: report).render().decode()
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)), text


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_exposed(name):
    assert name in exposed()[0]


@pytest.mark.parametrize("name", sorted({*METRICS, *OF_MACHINES}))
def test_a_metric_has_its_labels(name):
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for part in ("observe", "pipeline")
        for path in (ROOT / "src/forebay" / part).glob("*.py")
    )
    made = re.search(rf'"{name.removesuffix("_total")}",?(.{{0,400}})', source, re.DOTALL)
    assert made, "no such metric in the code"
    wanted = [label for label in METRICS.get(name, "").split() if label != "task"]
    assert [label for label in wanted if f'"{label}"' not in made[1]] == []


def test_latency_has_a_bucket_at_45_ms():
    assert 'inference_latency_seconds_bucket{le="0.045",task="a"}' in exposed()[1]


@pytest.mark.parametrize("home", PYTHON)
def test_a_python_name_is_there(home):
    found = forebay if home == "forebay" else getattr(forebay, home.partition(".")[2])
    assert [name for name in PYTHON[home].split() if not hasattr(found, name)] == []


def test_arguments_and_attributes_have_their_names():
    def names(function):
        return set(inspect.signature(function).parameters)

    assert set(TASK_ARGUMENTS.split()) - names(forebay.App.task) == set()
    assert {"url", "concurrency"} - names(forebay.App.upstream) == set()
    assert [name for name in CONTEXT.split() if not hasattr(forebay.Context(), name)] == []
    for kind in (forebay.Client, forebay.AsyncClient):
        assert [name for name in CLIENT.split() if not hasattr(kind, name)] == []
    taken = set(SubmitOptions.__annotations__) | names(forebay.Client.submit)
    assert set(SUBMISSION.split()) - taken == set()
    assert "rate" in names(forebay.Client.map)
    assert set(FRAME_QUEUE.split()) - names(forebay.streams.FrameQueue) == set()
    assert {"put", "offer", "get", "qsize", "dropped"} - set(dir(forebay.streams.FrameQueue)) == set()
    assert {"peak_per_s", "wait_max"} - names(forebay.Queue.sized) == set()
    assert {"put_timeout", "on_full"} - names(forebay.Queue) == set()
    wanted = {"queue", "on_full", "replicas", "degrade", "breaker", "fallback"}
    assert wanted - names(forebay.Stage) == set()
    assert {"failures", "window"} - names(forebay.Breaker) == set()
    assert set(forebay.ETA._fields) == {"p50_s", "p90_s", "position"}


def test_both_clients_have_the_same_verbs():
    def verbs(kind):
        return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}

    assert verbs(forebay.Client) - {"close"} == verbs(forebay.AsyncClient) - {"close", "aclose"}


def test_extras_have_their_names_and_all_is_all_of_them():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.split()) == set(extras)
    (everything,) = extras["all"]
    assert set(re.search(r"\[(.*)\]", everything)[1].split(",")) == set(extras) - {"all"}
    assert EXTRAS_NOT_YET & set(extras) == set(), "it is there: move it into EXTRAS"


def test_settings_have_their_names_and_the_two_of_others_are_honoured(tmp_path):
    assert {f"FOREBAY_{name}" for name in SETTINGS.split()} - {
        one.env for one in describe_settings()
    } == set()
    found = load_settings(env={"WORKER_CONCURRENCY": "4", "QUEUE_MAXSIZE": "1000"}, cwd=tmp_path)
    assert (found.workers, found.queue_max) == (4, 1000)


def test_the_alerts_are_these_and_more():
    assert set(ALERTING.split()) - {alert.name for alert in ALERTS} == set()


def test_priorities_have_their_names_and_numbers():
    async def run(caller):
        for name in ("high", "normal", "low"):
            assert (await caller.one(priority=name))["priority"] == name
        assert (await caller.one(priority=0))["priority"] == 0
        assert (await caller.submit(priority=10)).status_code == 422

    call(run)
