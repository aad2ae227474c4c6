"""Keys as texts and as a file: what is read, what is refused, and that no refusal shows a key."""

import pytest

from forebay.core.tenant import EVERY_SCOPE, SCOPES_DEFAULT, Limits, Scope
from forebay.errors import ConfigError
from forebay.keys import digest_of, line_for, new_key, read_ring

KEY = "fb_0123456789abcdefghijklmnopqrstuvwxyz"
HASH = "sha256:" + digest_of(KEY.encode()).hex()


def only(ring):
    ((digest, key),) = ring.keys.items()
    assert digest == key.digest == digest_of(KEY.encode())
    return key


def from_file(tmp_path, text):
    path = tmp_path / "keys.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_ring(None, path)


@pytest.mark.parametrize(
    ("text", "tenant", "scopes"),
    [
        (KEY, "default", SCOPES_DEFAULT),
        (f"{KEY}=a", "a", SCOPES_DEFAULT),
        (f"{KEY}:a", "a", SCOPES_DEFAULT),
        (f" {KEY}=a:submit+read ", "a", {Scope.SUBMIT, Scope.READ}),
        (f"{KEY}:a:admin", "a", {Scope.ADMIN}),
        (f"{HASH}=a", "a", SCOPES_DEFAULT),
        (f"{HASH}:a:read", "a", {Scope.READ}),
        (f'{{"{KEY}": "a"}}', "a", SCOPES_DEFAULT),
        (f'{{"{KEY}": {{"tenant": "a", "scopes": ["cancel"]}}}}', "a", {Scope.CANCEL}),
    ],
)
def test_one_text_says_who_may_do_what(text, tenant, scopes):
    key = only(read_ring(text, None))
    assert (key.tenant, key.scopes) == (tenant, frozenset(scopes))


def test_several_keys_stand_in_one_text():
    ring = read_ring("secret-of-a=a, secret-of-b:b;secret-of-c", None)
    assert [key.tenant for key in ring.keys.values()] == ["a", "b", "default"]
    assert all(key.weak for key in ring.keys.values())


def test_a_new_key_is_let_in_by_its_line(tmp_path):
    key = new_key()
    assert len(key) >= 43 and key != new_key()
    line = line_for(key, "a", EVERY_SCOPE)
    assert key not in line
    ring = from_file(tmp_path, f"[keys]\n{line}\n")
    found = ring.keys[digest_of(key.encode())]
    assert (found.tenant, found.scopes, found.weak) == ("a", EVERY_SCOPE, False)


def test_limits_stand_with_the_tenant_or_with_its_key(tmp_path):
    text = (
        f'[keys]\n"{HASH}" = {{ tenant = "a", rate = "5/s", burst = 20 }}\n'
        '[tenants.b]\nrate = "600/m"\nbytes_rate = "1MB/s"\njobs_max = 10\nbytes_max = "1MiB"\nrunning_max = 2\nweight = 3\n'
    )
    ring = from_file(tmp_path, text)
    assert ring.limits["a"] == Limits(5.0, 20)
    assert ring.limits["b"] == Limits(10.0, None, 1e6, 10, 1 << 20, 2, 3.0)


def test_an_expiry_is_an_instant(tmp_path):
    for said in ('"2027-01-01T00:00:00Z"', "2027-01-01T00:00:00Z", "2027-01-01T01:00:00+01:00"):
        ring = from_file(tmp_path, f'[keys]\n"{HASH}" = {{ expires = {said} }}\n')
        assert only(ring).expires_at == 1_798_761_600.0


REFUSED = [
    ("[keys]\nx = 1\n", "key 1: must be a tenant, or a table like"),
    ('[keys]\n"short" = []\n', "key 1: must be a tenant, or a table like"),
    (f'[keys]\n"{HASH}" = {{ scopes = [["read"]] }}\n', "is not one of submit, read"),
    ('[keys]\n"short" = {}\n', "key 1: must be sha256: and 64 hex digits"),
    ('[keys]\n"sha256:12" = {}\n', "key 1: must be sha256: and 64 hex digits"),
    (f'[keys]\n"{HASH}" = {{ tenant = "a/b" }}\n', "tenant must be 1 to 64"),
    (f'[keys]\n"{HASH}" = {{ tenant = 5 }}\n', "tenant must be 1 to 64"),
    (f'[keys]\n"{HASH}" = {{ scopes = ["root"] }}\n', "scope 'root' is not one of submit, read"),
    (f'[keys]\n"{HASH}" = {{ scopes = [] }}\n', "scopes must name one or more"),
    (f'[keys]\n"{HASH}" = {{ scopes = "read" }}\n', "scopes must be a list"),
    (f'[keys]\n"{HASH}" = {{ expires = "soon" }}\n', "expires must be a time"),
    (f'[keys]\n"{HASH}" = {{ rate = 0 }}\n', "is not a rate"),
    (f'[keys]\n"{HASH}" = {{ tenants = "a" }}\n', "unknown field 'tenants'"),
    (f'[keys]\n"{HASH}" = {{ jobs_max = -1 }}\n', "jobs_max must be at least 0"),
    (f'[keys]\n"{HASH}" = {{ tenant = "a", rate = 1 }}\n[tenants.a]\nrate = 2\n', "said twice, and differ"),
    (f'[keys]\n"{HASH}" = {{}}\n"{KEY}" = {{}}\n', "key 2: is there twice"),
    ("[tenants.a]\nrates = 1\n", "unknown limit 'rates'"),
    ("[tenants.a]\nweight = nan\n", "weight: must be a number"),
    ("[tenants.a]\nweight = 1e9\n", "weight must be from 0.001 to 1e+06"),
    ("[tenants.a]\nrunning_max = 0\n", "running_max must be at least 1"),
    ('[tenants."-"]\nrate = 1\n', "tenant must be 1 to 64"),
    ("tenants = 1\n", "must be tables"),
    ("[key]\n", "unknown section 'key'"),
    ("[keys\n", "not TOML"),
    (b"\xff", "not UTF-8"),
]


@pytest.mark.parametrize(("text", "rule"), REFUSED, ids=lambda v: str(v)[:30])
def test_a_wrong_file_is_refused_in_one_line_without_the_key(tmp_path, text, rule):
    with pytest.raises(ConfigError) as refused:
        from_file(tmp_path, text)
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value) and KEY not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "short", "{", '{"a": ', f"{KEY}=", f"{KEY}=a b", f"{KEY}=a:root", f"{KEY}, {KEY}", "é" * 20,
        f'{{"{KEY}": 5}}', f'{{"{KEY}": null}}', f'{{"{KEY}": {{"scopes": [{{}}]}}}}', '{"a":' * 5000,
        f'{{"{KEY}": "one", "{KEY}": "other"}}',
    ],
    ids=lambda text: str(text)[:20],
)  # fmt: skip
def test_a_wrong_text_is_refused_in_one_line_without_the_key(text):
    with pytest.raises(ConfigError) as refused:
        read_ring(text, None)
    assert str(refused.value).startswith("api_keys: ")
    assert "\n" not in str(refused.value) and KEY not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_ring(None, tmp_path / "none.toml")
