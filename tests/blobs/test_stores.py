"""Every blob store keeps the contract, and the checks of the contract find a store that does not."""

import errno
import os
import stat
import sys

import httpx
import pytest

from forebay.blobs import local
from forebay.blobs.local import LocalBlobs
from forebay.blobs.opening import open_blobs
from forebay.conformance.blob_stores import BLOB_CHECKS, an_id, stored
from forebay.errors import ConfigError, NotFoundError, StoreFullError, StoreUnavailableError
from tests.blobs.stores import a_local, an_s3, on_s3


@pytest.fixture(scope="session")
def s3_env():
    with an_s3() as env:
        yield env


@pytest.mark.parametrize("check", BLOB_CHECKS, ids=lambda check: check.__name__)
def test_a_directory_keeps_the_contract(check, tmp_path):
    with a_local(tmp_path) as store:
        check(store)


@pytest.mark.parametrize("check", BLOB_CHECKS, ids=lambda check: check.__name__)
def test_an_object_store_keeps_the_contract(check, s3_env):
    with on_s3(s3_env) as store:
        check(store)


def forgets_the_rest(store):
    read = store.read
    store.read = lambda blob_id, start, size: read(blob_id, start, size)[: max(0, size - 1)]


def keeps_what_was_deleted(store):
    store.delete = lambda blob_id: True


def takes_any_name(store):
    store.head = lambda blob_id: None
    store.delete = lambda blob_id: True


def keeps_what_was_aborted(store):
    begin = store.begin

    def begun(blob_id, kind):
        writer = begin(blob_id, kind)
        writer.abort = lambda: writer.commit() if writer._handle >= 0 else None
        return writer

    store.begin = begun


def lists_half(store):
    ids = store.ids
    store.ids = lambda: (one for number, one in enumerate(ids()) if number % 2)


def tells_another_size(store):
    head = store.head
    store.head = lambda blob_id: None if (info := head(blob_id)) is None else info._replace(size=1)


FAULTS = (
    *(forgets_the_rest, keeps_what_was_deleted, takes_any_name, keeps_what_was_aborted, lists_half),
    tells_another_size,
)


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_the_checks_find_a_store_that(plant, tmp_path):
    found = []
    for number, check in enumerate(BLOB_CHECKS):
        store = LocalBlobs(str(tmp_path / str(number)))
        plant(store)
        try:
            check(store)
        except Exception as error:
            found.append(f"{check.__name__}: {error}")
    assert found


def test_files_are_for_their_owner_alone_and_nothing_unfinished_stays(tmp_path):
    store = LocalBlobs(str(tmp_path / "blobs"))
    info = stored(store, b"x")
    found = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert {path.name for path in found} == {info.id, f"{info.id}.json"}
    for path in [tmp_path / "blobs", *(tmp_path / "blobs").rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_directory_that_everybody_may_write_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="chmod o-w"):
        LocalBlobs(str(tmp_path / "open"))


@pytest.mark.parametrize("planted", ["blob", "about", "tenant"])
def test_a_planted_link_leads_nowhere(planted, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    store = LocalBlobs(str(tmp_path / "blobs"))
    info = stored(store, b"x")
    tenant = tmp_path / "blobs" / info.id[:12]
    if planted == "tenant":
        tenant.rename(secret / "there")
        tenant.symlink_to(secret / "there")
    else:
        name = info.id if planted == "blob" else f"{info.id}.json"
        (tenant / name).rename(secret / name)
        (tenant / name).symlink_to(secret / name)
    if planted == "about":
        assert store.head(info.id) is None
    else:
        assert store.path(info.id) is None
        with pytest.raises(NotFoundError):
            store.read(info.id, 0, 1)
    store.delete(info.id)
    assert [path.name for path in secret.rglob("*") if path.is_file()], "what it leads to was deleted"


@pytest.mark.parametrize("at", ["write", "commit"])
def test_a_full_disk_is_told_and_leaves_nothing(at, tmp_path, monkeypatch):
    store = LocalBlobs(str(tmp_path / "blobs"))
    writer = store.begin(an_id(), "text/plain")
    writer.write(b"x")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local, "_write", full)
    with pytest.raises(StoreFullError, match="is full"):
        writer.write(b"y") if at == "write" else writer.commit()
    writer.abort()
    monkeypatch.undo()
    assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert stored(store, b"again").size == 5


def test_a_reserve_of_the_disk_stays_free(tmp_path, monkeypatch):
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    with pytest.raises(StoreFullError, match="blob_disk_reserve"):
        LocalBlobs(str(tmp_path / "a"), reserve_b=2 * free).begin(an_id(), "text/plain")
    store = LocalBlobs(str(tmp_path / "b"))
    writer = store.begin(an_id(), "text/plain")
    monkeypatch.setattr(writer, "CHECK_EVERY_B", 4)
    monkeypatch.setattr(writer, "_check_at", 4)
    writer.write(b"1234")
    store._reserve_b = 2 * free
    with pytest.raises(StoreFullError):
        writer.write(b"5")


def test_what_is_known_of_a_blob_is_not_believed_when_it_is_garbage(tmp_path):
    store = LocalBlobs(str(tmp_path / "blobs"))
    info = stored(store, b"x")
    (tmp_path / "blobs" / info.id[:12] / f"{info.id}.json").write_text('{"size": "many"}')
    with pytest.raises(StoreUnavailableError):
        store.head(info.id)


def test_writers_that_died_are_cleared_by_age(tmp_path):
    store = LocalBlobs(str(tmp_path / "blobs"))
    store.begin(an_id(1), "text/plain").write(b"left")
    (unfinished,) = (tmp_path / "blobs" / "unfinished").iterdir()
    os.utime(unfinished, (1_000, 1_000))
    store.begin(an_id(2), "text/plain").write(b"goes on")
    assert store.clear_unfinished(2_000) == 1
    assert [path.name for path in (tmp_path / "blobs" / "unfinished").iterdir()] == [an_id(2)]


@pytest.mark.parametrize("scheme,extra", [("s3", "s3"), ("gs", "gcs"), ("az", "azure")])
def test_without_its_library_an_object_store_names_the_extra(scheme, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=rf'pip install "forebay\[{extra}\]"'):
        open_blobs(f"{scheme}://bucket/prefix")


def test_other_schemes_are_refused_by_name():
    with pytest.raises(ConfigError, match="ftp:// is not known"):
        open_blobs("ftp://host/x")


def test_an_object_store_that_is_away_is_unavailable_and_no_traceback(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    store = open_blobs("s3://blobs/x")
    store._store = type(store._store)(
        "blobs", prefix="x", retry_config={"max_retries": 0}, client_options={"allow_http": True}
    )
    with pytest.raises(StoreUnavailableError):
        store.head(an_id())


def test_the_cloud_hands_out_one_object_by_its_own_link(s3_env):
    with on_s3(s3_env) as store:
        info, other = stored(store, b"hello"), stored(store, b"theirs", 1)
        url = store.link(info.id, 60.0)
        assert httpx.get(url).content == b"hello"
        assert "X-Amz-Expires=60" in url and other.id not in url
        assert store.link("../../etc/passwd", 60.0) is None


def test_a_directory_makes_no_links(tmp_path):
    with a_local(tmp_path) as store:
        assert store.link(stored(store, b"hello").id, 60.0) is None
