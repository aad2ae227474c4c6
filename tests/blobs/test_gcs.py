"""Blobs in Google Cloud Storage: its client against its XML API."""

import pytest

from forebay.conformance.blob_stores import BLOB_CHECKS
from tests.blobs.gcs import a_gcs
from tests.blobs.stores import on_bucket


@pytest.fixture(scope="module")
def gcs_env():
    with a_gcs() as env:
        yield env


@pytest.mark.parametrize("check", BLOB_CHECKS, ids=lambda check: check.__name__)
def test_google_cloud_storage_keeps_the_contract(check, gcs_env):
    with on_bucket(gcs_env, "gs") as store:
        check(store)
