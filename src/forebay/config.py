"""Settings: one schema -> defaults, file, environment, flags, checks, docs. The only reader of os.environ."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from forebay.errors import ConfigError
from forebay.values import READERS, About, Secret, one_line, read_table, service_links, without_password

FILE_NAME = "forebay.toml"
FILE_BYTES_MAX = 1024 * 1024
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
# Names that are honoured although they lack the prefix; ours wins when both are set.
_FOREIGN_NAMES = {"WORKER_CONCURRENCY": "workers", "QUEUE_MAXSIZE": "queue_max"}
# Children do not get the first; the others are read elsewhere and are no settings.
_DOORS = ("API_KEYS", "PAYLOAD_KEYS", "LINK_SECRET", "PUSH_TOKEN", "BROKER", "STORE")
_OURS_ALONE = {f"FOREBAY_{one}" for one in _DOORS}
_RESERVED = frozenset({"FOREBAY_APP", "FOREBAY_CONFIG"})


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting, with its default."""

    host: Annotated[str, About("address to listen on")] = "127.0.0.1"
    port: Annotated[int, About("port to listen on; 0 takes a free one", "int", 0, 65_535)] = 8080
    url: Annotated[str, About("server that the client and the command line talk to")] = (
        "http://127.0.0.1:8080"
    )
    api_key: Annotated[Secret | None, About("key that the client sends", "secret")] = None
    api_keys: Annotated[
        Secret | None,
        About("keys the server lets in: KEY=TENANT or KEY=TENANT:SCOPE+SCOPE, with commas", "secret"),
    ] = None
    keys_file: Annotated[
        str | None, About("TOML file of key hashes, tenants, scopes and limits; read again when it changes")
    ] = None
    admin_host: Annotated[str, About("address of the admin listener")] = "127.0.0.1"
    admin_port: Annotated[
        int | None,
        About(
            "port of a listener of its own for metrics, workers and the taps; none: all on one",
            "int",
            0,
            65_535,
        ),
    ] = None
    payload_keys: Annotated[
        Secret | None,
        About(
            "keys that encrypt what jobs hold, in the store: the first seals, all open; with commas", "secret"
        ),
    ] = None
    data: Annotated[str, About("directory of the embedded store")] = ".forebay"
    broker: Annotated[str | None, About("engine: postgresql://…, amqp://…; none: embedded", "url")] = None
    store: Annotated[str | None, About("what keeps the jobs where broker only delivers", "url")] = None
    workers: Annotated[
        int | None, About("replicas of each class task, and size of the pool of functions", "int", 1, 1024)
    ] = None
    replicas_wait: Annotated[float, About("wait that calls for replicas", "duration", 0.1, 86_400)] = 10.0
    replicas_idle: Annotated[float, About("calm that ends spare ones", "duration", 1, 86_400)] = 60.0
    queue_max: Annotated[int, About("jobs one task may hold", "int", 1, 100_000_000)] = 100_000
    queue_bytes_max: Annotated[int, About("bytes one task may hold", "size", 1024, 1 << 50)] = 1 << 30
    budgets: Annotated[
        tuple[str, ...],
        About("rates that producers share by name: ci=300/s, with commas; others are made on use", "budgets"),
    ] = ()
    request_deadline: Annotated[float, About("time a request has by default", "duration", 0.001, 3600)] = 30.0
    requests_max: Annotated[int, About("requests of one task that may wait", "int", 1, 1_000_000)] = 10_000
    requests_bytes_max: Annotated[int, About("bytes of a task's requests", "size", 1024, 1 << 40)] = 256 << 20
    requests_jobs_share: Annotated[float, About("time jobs get beside requests", "number", 0, 0.9)] = 0.1
    lease: Annotated[float, About("time a node owns a job between renewals", "duration", 0.5, 3600)] = 30.0
    heartbeat: Annotated[float, About("time between renewals", "duration", 0.05, 1200)] = 5.0
    grace: Annotated[float, About("time running work gets at a stop", "duration", 0, 86_400)] = 30.0
    retention: Annotated[float, About("time a job is kept after its end", "duration", 1, 31_622_400)] = (
        86_400.0
    )
    retention_failed: Annotated[
        float | None,
        About("time a dead letter is kept; none: a week, or retention if longer", "duration", 1, 31_622_400),
    ] = None
    body_bytes_max: Annotated[
        int, About("largest submission, and largest line of many", "size", 1024, 64 << 20)
    ] = 1 << 20
    result_bytes_max: Annotated[int, About("largest result kept in the record", "size", 1024, 64 << 20)] = (
        256 * 1024
    )
    payload_bytes_max: Annotated[
        int, About("largest JSON payload that is taken by way of a blob", "size", 1024, 1 << 30)
    ] = 64 << 20
    blobs: Annotated[
        str | None, About("where large payloads and results are: a directory, s3://, gs:// or az://")
    ] = None
    blob_bytes_max: Annotated[int, About("largest blob", "size", 1024, 1 << 44)] = 5 << 30
    blob_grace: Annotated[
        float, About("time a blob is kept that no job names", "duration", 1, 31_622_400)
    ] = 86_400.0
    blob_disk_reserve: Annotated[int, About("disk that blobs leave free", "size", 0, 1 << 44)] = 256 << 20
    blob_sources: Annotated[
        tuple[str, ...],
        About(
            "references that handlers may fetch: https://, s3://bucket/, gs://bucket/, https://host/", "words"
        ),
    ] = ("https://",)
    blob_cache_bytes_max: Annotated[
        int, About("bytes of fetched blobs kept on this machine", "size", 1 << 20, 1 << 44)
    ] = 10 << 30
    spool: Annotated[int, About("jobs kept here while the store is away; 0: none", "int", 0, 1_000_000)] = 0
    spool_bytes_max: Annotated[int, About("bytes of them", "size", 1024, 1 << 36)] = 64 << 20
    spool_age_max: Annotated[float, About("age of the oldest to take more", "duration", 1, 604_800)] = 3600.0
    webhook_secret: Annotated[
        Secret | None,
        About(
            "secret that callbacks are signed with, whsec_...; several with commas while it is rotated; "
            "none means the one in the file webhook_secret under data",
            "signing secrets",
        ),
    ] = None
    link_secret: Annotated[
        Secret | None,
        About(
            "secret that links are signed with, whsec_...; several with commas while it is rotated: the "
            "first signs; none means the one in the file link_secret under data",
            "signing secrets",
        ),
    ] = None
    link_ttl: Annotated[
        float | None,
        About(
            "time that the link to the result opens, which finished jobs carry; none: they carry none",
            "duration",
            1,
            604_800,
        ),
    ] = None
    links_by: Annotated[
        str, About("who answers links to blobs in an object store", choices=("store", "server"))
    ] = "store"
    webhooks_allow_private: Annotated[
        bool,
        About("callbacks may go to private addresses, any port and plain http: tests and intranets", "bool"),
    ] = False
    webhooks_ports: Annotated[tuple[int, ...], About("ports that callbacks may go to", "ports")] = (443,)
    push_token: Annotated[Secret | None, About("shown by who sends to push:// of a stream", "secret")] = None
    hosts_allowed: Annotated[
        tuple[str, ...], About("names in the Host header to answer for besides loopback; * for all", "words")
    ] = ()
    log_format: Annotated[
        str, About("auto is text for a terminal, else json", choices=("auto", "json", "text"))
    ] = "auto"
    log_level: Annotated[
        str, About("least level that is logged", choices=("debug", "info", "warning", "error"))
    ] = "info"


class Field(NamedTuple):
    """One row of the settings page."""

    name: str
    env: str
    default: object
    about: About


def data_directory(settings: Settings) -> Path:
    """Return the directory of the embedded store, or of what a server on another engine keeps alone."""
    engine = settings.broker or ""
    if not engine.startswith("sqlite:"):
        return Path(settings.data)
    return Path(engine.removeprefix("sqlite:").removeprefix("//") or settings.data)


def describe_settings() -> list[Field]:
    """Return every setting in order, for the reference page and the command line."""
    defaults = Settings()
    return [
        Field(name, f"FOREBAY_{name.upper()}", getattr(defaults, name), about)
        for name, about in _ABOUT.items()
    ]


def process_environment() -> dict[str, str]:
    """Return this process's environment for what children inherit: all but what opens the server's doors."""
    return {name: value for name, value in os.environ.items() if name not in _OURS_ALONE}


def app_named() -> str | None:
    """Return the application that FOREBAY_APP names: for servers that are told nothing else."""
    return os.environ.get("FOREBAY_APP") or None


def load_settings(
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    *,
    file: Path | None = None,
) -> Settings:
    """Return the settings: defaults, then forebay.toml in `cwd` (or `file`), then FOREBAY_*, then flags.

    Flags that are None were not given. `env` None reads the environment of the process.
    Raises ConfigError with one line naming where, which setting, and the rule.
    """
    env = os.environ if env is None else env
    cwd = Path.cwd() if cwd is None else cwd
    if file is None and env.get("FOREBAY_CONFIG"):
        file = Path(env["FOREBAY_CONFIG"])
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, found in (
        *_from_file(cwd, file),
        *_from_env(env),
        *((f"flag --{name.replace('_', '-')}", (name, value)) for name, value in (flags or {}).items()),
    ):
        name, value = found
        if value is None:
            continue
        if name not in _ABOUT:
            raise ConfigError(f"{source}: unknown setting{_near(name, _ABOUT)}")
        values[name] = _read(source, name, value)
        sources[name] = source
    settings = Settings(**values)
    _check_together(settings, sources)
    return settings


def shown(settings: Settings) -> dict[str, object]:
    """Return the effective settings for people, with secrets masked."""
    values = {name: getattr(settings, name) for name in _ABOUT}
    values |= {name: without_password(values[name]) for name in ("broker", "store") if values[name]}
    return {name: str(value) if isinstance(value, Secret) else value for name, value in values.items()}


def _from_file(cwd: Path, explicit: Path | None) -> list[tuple[str, tuple[str, Any]]]:
    path = explicit if explicit is not None else cwd / FILE_NAME
    name = str(explicit) if explicit is not None else FILE_NAME
    if explicit is None and not path.exists() and not path.is_symlink():
        return []
    try:
        table = read_table(path, bytes_max=FILE_BYTES_MAX)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    return [(name, pair) for pair in table.items()]


def _from_env(env: Mapping[str, str]) -> list[tuple[str, tuple[str, Any]]]:
    found: list[tuple[str, tuple[str, Any]]] = []
    for foreign, name in _FOREIGN_NAMES.items():
        if foreign in env and f"FOREBAY_{name.upper()}" not in env:
            found.append((foreign, (name, env[foreign])))
    others = _RESERVED | service_links(env)
    for variable in sorted(env):
        if not variable.startswith("FOREBAY_") or variable in others:
            continue
        name = variable.removeprefix("FOREBAY_").lower()
        if name not in _ABOUT or variable != variable.upper():
            known = [f"FOREBAY_{known.upper()}" for known in _ABOUT]
            raise ConfigError(f"{one_line(variable)}: unknown setting{_near(variable, known)}")
        found.append((variable, (name, env[variable])))
    return found


def _read(source: str, name: str, value: Any) -> Any:
    """Return the value as its setting wants it. Texts come from the environment, other types from TOML."""
    about = _ABOUT[name]
    try:
        if isinstance(value, str):
            value = value.rstrip("\r\n")
            if not value.strip():
                raise ValueError("is empty: leave it out to take the default")
            if value[0] in "\"'" and value[-1] == value[0] and len(value) > 1:
                raise ValueError("has quotes around it: the shell or the file kept them")
        read = READERS[about.kind](value)
        if about.choices and read not in about.choices:
            raise ValueError(f"is not one of {', '.join(about.choices)}")
        if about.low is not None and about.high is not None and not about.low <= read <= about.high:
            raise ValueError(f"must be from {about.bound(about.low)} to {about.bound(about.high)}")
    except ValueError as error:
        told = "" if "secret" in about.kind or about.kind == "url" else f" = {one_line(repr(value))}"
        raise ConfigError(f"{source}: {name}{told}: {one_line(str(error))}") from None
    return read


def _check_together(settings: Settings, sources: Mapping[str, str]) -> None:
    """Refuse settings that contradict each other, naming both."""

    def told(name: str) -> str:
        where = sources.get(name, "default")
        value = getattr(settings, name)
        return f"{name} = {value:g} ({where})" if isinstance(value, float) else f"{name} = {value} ({where})"

    if settings.heartbeat > settings.lease / 3:
        raise ConfigError(f"{told('heartbeat')} must be at most a third of {told('lease')}")
    if settings.result_bytes_max > settings.queue_bytes_max:
        raise ConfigError(f"{told('result_bytes_max')} is more than {told('queue_bytes_max')}")
    if settings.body_bytes_max > settings.queue_bytes_max:
        raise ConfigError(f"{told('body_bytes_max')} is more than {told('queue_bytes_max')}")
    if settings.result_bytes_max > settings.payload_bytes_max:
        raise ConfigError(f"{told('result_bytes_max')} is more than {told('payload_bytes_max')}")
    keyed = settings.api_keys is not None or settings.keys_file is not None
    for name in ("host", "admin_host"):
        host = getattr(settings, name)
        if keyed or host in _LOOPBACK or host.startswith("127."):
            continue
        raise ConfigError(
            f"{told(name)} is not loopback and there are no API keys: anybody could submit;"
            " use 127.0.0.1, or set api_keys or keys_file"
        )


def _near(name: str, known: Mapping[str, object] | list[str]) -> str:
    close = difflib.get_close_matches(name[:64], list(known), n=1, cutoff=0.5)
    told = one_line(ascii(name[:64]))
    return f" {told} (did you mean {close[0]!r}?)" if close else f" {told}"


def _abouts() -> dict[str, About]:
    hints = get_type_hints(Settings, include_extras=True)
    found: dict[str, About] = {}
    for name in Settings.__struct_fields__:
        hint = hints[name]
        assert get_origin(hint) is Annotated, name
        found[name] = next(extra for extra in get_args(hint)[1:] if isinstance(extra, About))
    return found


_ABOUT = _abouts()
