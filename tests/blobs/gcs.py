"""a_gcs: what Google Cloud Storage says by its XML API, which it shares with S3: moto answers.

No signatures and no tokens: the client of obstore makes neither for a server that is not Google's. What is not S3's
(conditions on generations, resumable uploads) is not there, and Forebay uses none of it.
"""

import contextlib
import json
import threading

import httpx
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

SIGNED_FOR_MOTO = (
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
)


class _Silent(WSGIRequestHandler):
    def log(self, *_args):
        """Say nothing."""


@contextlib.contextmanager
def a_gcs():
    """Run one; yields the environment that leads there, with a bucket called blobs."""
    moto = DomainDispatcherApplication(create_backend_app)

    def answer(environ, start):
        environ["HTTP_AUTHORIZATION"] = SIGNED_FOR_MOTO  # else it takes the caller for nobody
        return moto(environ, start)

    server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=_Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.port}"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    account = {
        "gcs_base_url": url,
        "disable_oauth": True,
        "client_email": "tests@forebay.invalid",
        "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "private_key_id": "1",
    }
    try:
        assert httpx.put(f"{url}/blobs").status_code == 200
        yield {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "GOOGLE_ALLOW_HTTP": "true"}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
