"""Settings: where they come from, what is refused, and that every refusal is one clear line."""

import json
import os

import pytest

from forebay.config import Secret, Settings, describe_settings, load_settings, shown
from forebay.errors import ConfigError


def load(tmp_path, text=None, env=None, **flags):
    if text is not None:
        (tmp_path / "forebay.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_settings(flags, env or {}, tmp_path)


def test_without_anything_the_defaults_hold(tmp_path):
    assert load(tmp_path) == Settings()
    settings = Settings()
    assert (settings.host, settings.port, settings.data, settings.queue_max) == (
        "127.0.0.1",
        8080,
        ".forebay",
        100_000,
    )
    assert (settings.lease, settings.grace, settings.retention) == (30.0, 30.0, 86_400.0)
    assert (settings.body_bytes_max, settings.result_bytes_max) == (1 << 20, 256 << 10)


def test_flags_beat_the_environment_that_beats_the_file(tmp_path):
    text = 'port = 1001\nqueue_max = 1\ngrace = "1m"\n'
    env = {"FOREBAY_PORT": "1002", "FOREBAY_QUEUE_MAX": "2"}
    settings = load(tmp_path, text, env, port=1003, grace=None)
    assert (settings.port, settings.queue_max, settings.grace) == (1003, 2, 60.0)


def test_the_names_of_others_are_honoured_below_ours(tmp_path):
    env = {"WORKER_CONCURRENCY": "3", "QUEUE_MAXSIZE": "500"}
    settings = load(tmp_path, "workers = 9", env)
    assert (settings.workers, settings.queue_max) == (3, 500)
    assert load(tmp_path, env=env | {"FOREBAY_WORKERS": "4"}).workers == 4


def links_of(service):
    """What the kubelet sets for a Service with one named port, as its documentation has it."""
    at, address = "tcp://10.0.0.7:8080", "10.0.0.7"
    return {
        f"{service}_SERVICE_HOST": address,
        f"{service}_SERVICE_PORT": "8080",
        f"{service}_SERVICE_PORT_HTTP": "8080",
        f"{service}_PORT": at,
        f"{service}_PORT_8080_TCP": at,
        f"{service}_PORT_8080_TCP_PROTO": "tcp",
        f"{service}_PORT_8080_TCP_PORT": "8080",
        f"{service}_PORT_8080_TCP_ADDR": address,
    }


def test_what_kubernetes_says_of_a_service_called_forebay_is_no_setting(tmp_path):
    env = links_of("FOREBAY") | links_of("FOREBAY_API") | {"FOREBAY_WORKERS": "2"}
    settings = load(tmp_path, env=env)
    assert (settings.port, settings.workers) == (8080, 2)
    assert load(tmp_path, env=env | {"FOREBAY_PORT": "9000"}).port == 9000
    with pytest.raises(ConfigError, match="FOREBAY_PORT: port = 'tcp:"):  # no Service is told of
        load(tmp_path, env={"FOREBAY_PORT": "tcp://10.0.0.7:8080"})
    with pytest.raises(ConfigError, match="FOREBAY_API_KYE: unknown setting"):
        load(tmp_path, env=env | {"FOREBAY_API_KYE": "k"})


def test_durations_and_sizes_are_read_as_people_write_them(tmp_path):
    settings = load(tmp_path, 'lease = "90s"\nbody_bytes_max = "64KiB"\nheartbeat = 0.25\n')
    assert (settings.lease, settings.body_bytes_max, settings.heartbeat) == (90.0, 65536, 0.25)


REFUSED = [
    ({"text": "prot = 1"}, "forebay.toml: unknown setting 'prot' (did you mean 'port'?)"),
    ({"text": "[server]\nport = 1"}, "forebay.toml: there are no sections: [server]"),
    ({"text": "port = 1\nport = 2"}, "forebay.toml: not TOML: "),
    ({"text": "port = 010"}, "forebay.toml: not TOML: "),
    ({"text": "port == 1"}, "line 1"),
    ({"text": "port = no"}, "forebay.toml: not TOML: "),
    ({"text": "port = 1:30"}, "forebay.toml: not TOML: "),
    ({"text": "port = true"}, "port = True: must be a whole number"),
    ({"text": "port = 1.0"}, "port = 1.0: must be a whole number"),
    ({"text": 'port = "80 80"'}, "must be a whole number"),
    ({"text": "lease = inf"}, "not finite"),
    ({"text": "lease = nan"}, "a duration"),
    ({"text": "lease = 1979-05-27"}, "a duration"),
    ({"text": "host = 5"}, "host = 5: must be a text"),
    ({"text": 'host = "a\\u0000b"'}, "contains a control character"),
    ({"text": b"host = \"\xff\""}, "forebay.toml: not UTF-8 (byte 8)"),
    ({"text": b"\xff\xfep\x00"}, "forebay.toml: not UTF-8"),
    ({"text": "#" * (2 << 20)}, "larger than 1048576 bytes"),
    ({"text": "x = " + "[" * 100_000}, "forebay.toml: not TOML: "),
    ({"env": {"FOREBAY_PROT": "1"}}, "FOREBAY_PROT: unknown setting 'FOREBAY_PROT' (did you mean 'FOREBAY_PORT'?)"),
    ({"env": {"FOREBAY_Port": "1"}}, "unknown setting"),
    ({"env": {"FOREBAY_PORT": ""}}, "FOREBAY_PORT: port = '': is empty"),
    ({"env": {"FOREBAY_PORT": '"8080"'}}, "has quotes around it"),
    ({"env": {"FOREBAY_PORT": "70000"}}, "FOREBAY_PORT: port = '70000': must be from 0 to 65535"),
    ({"env": {"FOREBAY_PORT": "-1"}}, "must be from 0 to 65535"),
    ({"env": {"FOREBAY_PORT": "8_080"}}, "must be a whole number"),
    ({"env": {"FOREBAY_PORT": "٣"}}, "must be a whole number"),
    ({"env": {"FOREBAY_PORT": "9" * 5000}}, "must be a whole number"),
    ({"env": {"FOREBAY_WORKERS": "0"}}, "workers = '0': must be from 1 to 1024"),
    ({"env": {"WORKER_CONCURRENCY": "many"}}, "WORKER_CONCURRENCY: workers = 'many': must be a whole number"),
    ({"env": {"FOREBAY_QUEUE_MAX": "0"}}, "must be from 1 to"),
    ({"env": {"FOREBAY_LOG_FORMAT": "xml"}}, "log_format = 'xml': is not one of auto, json, text"),
    ({"env": {"FOREBAY_GRACE": "5 parsecs"}}, "a duration"),
    ({"env": {"FOREBAY_LEASE": "9\x1b[31m\nh"}}, "FOREBAY_LEASE"),
    ({"env": {"FOREBAY_DATA": "a\udcff"}}, "FOREBAY_DATA: data = 'a\\udcff': is not UTF-8"),
    ({"flags": {"port": 99999}}, "flag --port: port = 99999: must be from 0 to 65535"),
    ({"flags": {"quue_max": 5}}, "flag --quue-max: unknown setting 'quue_max' (did you mean 'queue_max'?)"),
    ({"flags": {"heartbeat": 20}}, "heartbeat = 20 (flag --heartbeat) must be at most a third of lease = 30 (default)"),
    ({"flags": {"lease": "1s"}, "env": {}}, "heartbeat = 5 (default) must be at most a third of lease = 1 (flag --lease)"),
    ({"flags": {"queue_bytes_max": 2048}}, "result_bytes_max"),
    ({"flags": {"body_bytes_max": "2MiB", "queue_bytes_max": "1MiB"}}, "body_bytes_max = 2097152"),
    ({"flags": {"host": "0.0.0.0"}}, "host = 0.0.0.0 (flag --host) is not loopback and there are no API keys"),
    ({"flags": {"host": "::"}}, "is not loopback"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "told"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_a_wrong_setting_is_one_line_that_names_where_what_and_the_rule(tmp_path, given, told):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, given.get("text"), given.get("env"), **given.get("flags", {}))
    text = str(caught.value)
    assert told in text and text.isprintable() and len(text) < 500


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "\ufeffport = 9\n", "port = 9\r\n# x\r\n", "\tport = 9\n", "port = 1_0"]
)
def test_an_odd_but_good_file_is_read(tmp_path, text):
    load(tmp_path, text)


def test_a_file_that_was_named_must_be_there(tmp_path):
    with pytest.raises(ConfigError, match="gone.toml: not a file"):
        load_settings({}, {}, tmp_path, file=tmp_path / "gone.toml")
    with pytest.raises(ConfigError, match="not a file"):
        load_settings({}, {"FOREBAY_CONFIG": str(tmp_path)}, tmp_path)
    (tmp_path / "forebay.toml").mkdir()
    with pytest.raises(ConfigError, match="forebay.toml: not a file"):
        load_settings({}, {}, tmp_path)


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    loop = tmp_path / "forebay.toml"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match=r"forebay.toml: "):
        load_settings({}, {}, tmp_path)


def test_a_pipe_in_place_of_the_file_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "forebay.toml")
    with pytest.raises(ConfigError, match="not a file"):
        load_settings({}, {}, tmp_path)


def test_a_secret_never_shows_itself(tmp_path):
    settings = load(tmp_path, env={"FOREBAY_API_KEY": "p@ss:/%# word\n"})
    assert settings.api_key.reveal() == "p@ss:/%# word"
    for text in (repr(settings), str(settings.api_key), f"{settings.api_key}", json.dumps(shown(settings))):
        assert "p@ss" not in text
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, env={"FOREBAY_API_KEY": "hunter\x00two"})
    assert "hunter" not in str(caught.value)
    assert Secret("a") == Secret("a") != Secret("b") and hash(Secret("a")) == hash(Secret("a"))


@pytest.mark.parametrize("name", ["broker", "store"])
@pytest.mark.parametrize(
    "url",
    [
        "amqp://user:12/34hush@host/vhost",
        "amqp://user:12#34hush@host/",
        "nats://user:hush?more@host:4222",
        "redis://:12/hush@host:6379/0",
        "postgresql://user:hush/12@host/db",
        "'amqp://user:hush@host/'",
        "amqp://user:hush@ho\x00st/",
    ],
)
def test_no_part_of_a_password_in_a_url_stands_in_the_error(tmp_path, name, url):
    for load_it in (
        lambda: load(tmp_path, env={f"FOREBAY_{name.upper()}": url}),
        lambda: load(tmp_path, **{name: url}),
    ):
        with pytest.raises(ConfigError) as caught:
            load_it()
        assert "hush" not in str(caught.value) and name in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "amqp://user:a%2Fb%40c@host/vhost",
        "postgresql://host:5432/db?user=me@realm",
        "postgresql://me@host/db?application_name=a@b",
        "redis://host",
        "sqlite:///home/me@here/data",
        "amqp://user:p@ss@host/",
    ],
)
def test_a_url_with_an_at_in_its_place_is_taken(tmp_path, url):
    assert load(tmp_path, broker=url).broker == url


def test_loopback_in_any_spelling_needs_no_keys(tmp_path):
    for host in ("localhost", "127.0.0.1", "127.1.2.3", "::1"):
        assert load(tmp_path, host=host).host == host


@pytest.mark.parametrize("word", ["true", "Yes", "ON", "1", True])
def test_true_is_one_of_few_words(word):
    from forebay.values import _bool

    assert _bool(word) is True and _bool({"1": "0", "Yes": "no"}.get(word, "off")) is False
    for odd in ("ture", "y", "2", "", 1, None):
        with pytest.raises(ValueError, match="true or false"):
            _bool(odd)


def test_every_setting_is_described():
    rows = describe_settings()
    assert [row.name for row in rows] == list(Settings.__struct_fields__)
    assert all(row.env == f"FOREBAY_{row.name.upper()}" and row.about.text for row in rows)


def test_the_environment_of_the_process_is_read_when_none_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("FOREBAY_PORT", "4711")
    assert load_settings({}, None, tmp_path).port == 4711
