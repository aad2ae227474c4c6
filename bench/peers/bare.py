"""The smallest ASGI application: what a request costs before any work, to tell how fast the machine is."""

HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"2")]


async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": b"ok"})
