"""Blobs on a second S3 that is nobody's mock: SeaweedFS, which keeps them on a disk and checks signatures."""

import httpx
import pytest

from forebay.conformance.blob_stores import BLOB_CHECKS, an_id, stored
from forebay.errors import StoreUnavailableError
from tests.blobs.stores import on_s3
from tests.blobs.weed import WeedServer

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def weed():
    one = WeedServer()
    try:
        yield one.start()
    finally:
        one.stop()


@pytest.mark.parametrize("check", BLOB_CHECKS, ids=lambda check: check.__name__)
def test_another_s3_keeps_the_contract_too(check, weed):
    with on_s3(weed.env) as store:
        check(store)


@pytest.mark.parametrize("wrong", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_keys_that_are_wrong_are_told_in_one_line_and_store_nothing(weed, wrong):
    with on_s3(weed.env) as store:
        with on_s3({**weed.env, wrong: "wrong"}) as other:
            with pytest.raises(StoreUnavailableError) as told:
                stored(other, b"x")
            assert "\n" not in str(told.value) and "secret-of-the-tests" not in str(told.value)
            with pytest.raises(StoreUnavailableError):
                other.head(an_id())
        assert not list(store.ids())


def test_a_link_is_good_for_one_object_and_as_it_was_signed(weed):
    with on_s3(weed.env) as store:
        info, other = stored(store, b"hello"), stored(store, b"theirs", 1)
        url = store.link(info.id, 60.0)
        assert httpx.get(url).content == b"hello"
        assert httpx.get(url.replace(info.id, other.id)).status_code == 403
        assert httpx.get(url.replace("X-Amz-Expires=60", "X-Amz-Expires=6000")).status_code == 403
        assert httpx.put(url, content=b"mine").status_code == 403
        assert httpx.get(url.partition("?")[0]).status_code == 403
        assert store.read(info.id, 0, 10) == b"hello"
