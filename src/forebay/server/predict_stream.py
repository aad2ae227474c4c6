"""Accept: text/event-stream on a request: the parts of its output as they come, then its end."""

import asyncio

from forebay.core.requests import End, Ended
from forebay.server.answer import NO_STORE, Headers, Send
from forebay.server.channel import Reader, event_text
from forebay.server.limits import ANSWER_TIMEOUT_S
from forebay.server.live import READERS_MAX, Hub
from forebay.server.predict_answers import problem_of_end
from forebay.server.problems import ClientGoneError, TooManyReadersError

BUSY_RETRY_S = 5.0
_KIND = (b"content-type", b"text/event-stream; charset=utf-8")
_NO_BUFFER = (b"x-accel-buffering", b"no")


def open_reader(hub: Hub, request_id: str) -> Reader:
    """Return a reader of the parts of a request; `hub.close` it. Raises TooManyReadersError."""
    if hub.readers >= READERS_MAX or hub.closed:
        raise TooManyReadersError(retry_after_s=BUSY_RETRY_S, limit=READERS_MAX)
    return hub.open(request_id)


async def stream_parts(
    reader: Reader, answered: "asyncio.Future[Ended]", send: Send, headers: Headers
) -> Ended | None:
    """Send the parts of a request as `partial` events and its end as `done` or `error`.

    Returns the end, and sends nothing, where there was no part and no output: that has a status of its own.
    Raises ClientGoneError when the client has gone, or reads nothing for ANSWER_TIMEOUT_S.
    """
    answered.add_done_callback(lambda _: reader.ring())
    begun = False
    while True:
        text = _gap(reader) + reader.take()
        if text:
            if not begun:
                begun = await _begin(send, headers)
            await _send(send, text, more=True)
        elif answered.done():
            break
        else:
            await reader.rung()
    if answered.cancelled():
        raise ClientGoneError
    ended = answered.result()
    if ended.end is not End.DONE and not begun:
        return ended
    if not begun:
        await _begin(send, headers)
    if ended.end is End.DONE:
        text = event_text("done", b'{"output":%b}' % (ended.output or b"null"))
    else:
        text = event_text("error", problem_of_end(ended)[1])
    await _send(send, text, more=False)
    return None


def _gap(reader: Reader) -> bytes:
    missed = reader.missed()
    return event_text("gap", b'{"missed":%d,"reason":"behind"}' % missed) if missed else b""


async def _begin(send: Send, headers: Headers) -> bool:
    start = [_KIND, NO_STORE, _NO_BUFFER, *headers]
    await send({"type": "http.response.start", "status": 200, "headers": start})
    return True


async def _send(send: Send, text: bytes, *, more: bool) -> None:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await send({"type": "http.response.body", "body": text, "more_body": more})
    except TimeoutError:
        raise ClientGoneError from None
