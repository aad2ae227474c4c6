"""Blob stores for tests: a directory, and an S3 on loopback."""

import contextlib
import itertools
import logging
import os

import obstore
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from forebay.blobs.local import LocalBlobs
from forebay.blobs.opening import open_blobs

_NUMBERS = itertools.count()
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextlib.contextmanager
def an_s3():
    """Run an S3; yields the environment that leads there, with a bucket called blobs."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    env = {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true"}
    try:
        import httpx

        assert httpx.put(f"{env['AWS_ENDPOINT_URL']}/blobs").status_code == 200
        yield env
    finally:
        server.stop()


def put_object(env, key, data, kind="text/plain"):
    store = S3Store("blobs", config={name.lower(): value for name, value in env.items()})
    obstore.put(store, key, data, attributes={"Content-Type": kind})


@contextlib.contextmanager
def a_local(tmp_path):
    yield LocalBlobs(str(tmp_path / "blobs"))


def on_s3(env):
    """Return a context with an empty store below a prefix of its own."""
    return on_bucket(env, "s3")


@contextlib.contextmanager
def on_bucket(env, scheme):
    """Yield an empty store below a prefix of its own."""
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield open_blobs(f"{scheme}://blobs/run-{next(_NUMBERS)}")
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
