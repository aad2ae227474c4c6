"""`forebay deploy compose|k8s|aws|systemd APP`: the files that run it, from one model of the capacity."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.cli.asked import Asked
from forebay.cli.options import Json
from forebay.cli.show import Stop, clean, print_json, say
from forebay.cli.sizing import ITEM_B, load_of
from forebay.core.deploying import PLACES, Model
from forebay.core.sizing import words
from forebay.core.sizing.plan import sized

Text = str | None
NAME_MAX = 40


def _command(place: str, says: str) -> Callable[..., int]:
    def deploy(
        app: Annotated[str, typer.Argument(metavar="APP", help="As for forebay serve, where it will run.")],
        task: Annotated[Text, typer.Option(metavar="TASK", help="Whose queue an autoscaler follows.")] = None,
        peak: Annotated[Text, typer.Option(metavar="RATE", help='Arrivals at the peak, like "60/s".')] = None,
        service: Annotated[Text, typer.Option(metavar="TIME", help='Of one item, or "20ms+2ms".')] = None,
        per_replica: Annotated[Text, typer.Option(metavar="RATE", help="Instead of --service.")] = None,
        batch_max: Annotated[Text, typer.Option(metavar="N", help="Items of one run. [1]")] = None,
        wait_max: Annotated[Text, typer.Option(metavar="TIME", help="Longest wait in line.")] = None,
        item_size: Annotated[Text, typer.Option(metavar="SIZE", help="Bytes of one item. [1KB]")] = None,
        workers: Annotated[Text, typer.Option(metavar="N", help="Replicas in one process. [1]")] = None,
        nodes_min: Annotated[Text, typer.Option(metavar="N", help="Processes at least. [2]")] = None,
        nodes_max: Annotated[Text, typer.Option(metavar="N", help="And at most. [as sized, else 10]")] = None,
        cpus: Annotated[Text, typer.Option(metavar="N", help="CPUs of one process. [one a worker]")] = None,
        memory: Annotated[Text, typer.Option(metavar="SIZE", help="Memory of one process. [1GiB]")] = None,
        gpus: Annotated[Text, typer.Option(metavar="N", help='GPUs of one process, or "all".')] = None,
        image: Annotated[Text, typer.Option(metavar="IMAGE", help="Of the container.")] = None,
        instance_type: Annotated[Text, typer.Option(metavar="TYPE", help="On AWS. [c5.large]")] = None,
        name: Annotated[Text, typer.Option(metavar="NAME", help="What all is called. [forebay]")] = None,
        grace: Annotated[Text, typer.Option(metavar="TIME", help="What work has at a stop. [30s]")] = None,
        out: Annotated[str, typer.Option(metavar="DIR", help="Where the files go.")] = f"deploy-{place}",
        force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
        json_: Json = False,
    ) -> int:
        given = {key: value for key, value in locals().items() if isinstance(value, str) and key not in _OURS}
        model = model_of(Asked(given))._replace(app=app)
        files = PLACES[place](model)
        _write(Path(out), files, force=force)
        if json_:
            print_json(
                {"out": out, "files": sorted(files), "sized": model.sized or None, "model": model._asdict()}
            )
            return 0
        say(clean(f"sizes: {model.sized or 'defaults; --peak, --service and --wait-max give your own'}"))
        for one in sorted(files):
            say(clean(f"{out}/{one}"))
        return 0

    deploy.__doc__ = f"Write {says}.\n\nNothing is started. Files that are there stay, unless --force."
    return deploy


_OURS = frozenset({"app", "out"})


def model_of(asked: Asked) -> Model:
    """Return the model that the flags give. Raises Stop for flags that say too little of a load."""
    workers = asked.count("workers", 1024) or 1
    model = Model(
        task=asked.text("task") or "",
        workers=workers,
        cpus=asked.number("cpus", 0, 10_000) or float(workers),
        memory_b=asked.bytes("memory") or 1 << 30,
        gpus=-1 if asked.text("gpus") == "all" else asked.count("gpus", 64) or 0,
        image=asked.text("image") or Model().image,
        instance_type=asked.text("instance_type") or Model().instance_type,
        name=_name(asked.text("name")),
    )
    grace_s = asked.seconds("grace", zero=True)
    model = model if grace_s is None else model._replace(grace_s=grace_s)
    model = _sized(model, asked)
    least = asked.count("nodes_min", 10_000) or model.nodes_min
    most = asked.count("nodes_max", 10_000) or max(model.nodes_max, least)
    if least > most:
        raise Stop(f"--nodes-min {least} is more than --nodes-max {most}", 2)
    return model._replace(nodes_min=least, nodes_max=most)


def _sized(model: Model, asked: Asked) -> Model:
    load = load_of(asked, None)
    if load is None:
        if asked.has("service", "per_replica", "wait_max", "batch_max", "item_size"):
            raise Stop("--peak is missing: sizes follow from what comes", 2)
        return model
    if load.law is None or load.wait_max_s is None:
        raise Stop("--peak needs --service (or --per-replica) and --wait-max", 2)
    does = sized(load)
    if does.needed is None:
        raise Stop(does.verdict.text, 1)
    nodes = -(-does.needed // model.workers)
    told = (
        f"{words.rate(load.peak_per_s)} at {words.rate(load.law.rate_per_s)} a replica within "
        f"{words.span(load.wait_max_s)}: {does.needed} replicas"
    )
    return model._replace(
        nodes_min=min(2, nodes),
        nodes_max=max(2, nodes),
        target=model.workers * (does.hpa.target if does.hpa is not None else 1),
        queue_max=does.queue_max,
        queue_bytes_max=None
        if does.queue_max is None
        else max(1 << 20, does.queue_max * (load.item_b or ITEM_B)),
        sized=told,
    )


def _name(text: str | None) -> str:
    if text is None:
        return Model().name
    good = text.isascii() and text.replace("-", "").isalnum() and text[:1].isalpha() and len(text) <= NAME_MAX
    if not good or text != text.lower() or text.endswith("-"):
        raise Stop(f"--name: {text!r} is not up to {NAME_MAX} of a-z, 0-9 and -, beginning with a letter", 2)
    return text


def _write(out: Path, files: dict[str, str], *, force: bool) -> None:
    there = [name for name in sorted(files) if (out / name).exists()]
    if there and not force:
        raise Stop(f"{clean(out / there[0], 200)} is there already: --force replaces it", 1)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Stop(f"--out {clean(out, 200)}: {error.strerror}", 2) from None


COMMANDS: dict[str, Callable[..., Any]] = {
    "compose": _command(
        "compose", "compose.yaml for one host, with Prometheus and a Grafana dashboard beside it"
    ),
    "k8s": _command(
        "k8s", "Kubernetes objects: api and work apart, HPA and KEDA, ServiceMonitor, PrometheusRule"
    ),
    "aws": _command(
        "aws", "a Terraform module: ALB, an ASG that follows the backlog, CloudWatch alarms that page"
    ),
    "systemd": _command("systemd", "a systemd unit and its settings"),
}
