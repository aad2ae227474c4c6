"""GET /v1/streams: the streams and stages of the pipelines that post on the board of this server."""

from forebay.errors import StreamEndedError
from tests.server.doors import call


class Posted:
    def streams(self):
        return [{"stream": "door", "served": 3}]

    def stages(self):
        return [{"stage": "detect"}]


def test_streams_and_stages_are_listed():
    async def run(caller):
        assert (await caller.get("/v1/streams")).json() == {"items": [], "stages": [], "next_cursor": None}

    call(run)


def test_what_is_posted_is_shown():
    async def run(caller):
        answer = await caller.get("/v1/streams")
        assert answer.json()["items"] == [{"stream": "door", "served": 3}]
        assert answer.json()["stages"] == [{"stage": "detect"}]
        assert (await caller.get("/v1/streams?limit=3")).status_code == 422

    call(run, board=Posted())


class Taking:
    """What pipelines would say of frames."""

    def __init__(self, **verdict):
        self.verdict = {"stream": "door", "seq": 3, "taken": True, "reason": None, "credits": 5, "every": 1}
        self.verdict |= {"retry_after_s": None} | verdict
        self.heard = []
        self.error = None

    def bytes_max(self, stream):
        return 10 if stream == "door" else None

    async def push(self, stream, header, pixels, kind):
        self.heard.append((stream, header, pixels, kind))
        if self.error is not None:
            raise self.error
        return self.verdict


FRAME = {"content-type": "image/jpeg", "forebay-frame": '{"seq": 3}'}


def test_a_frame_goes_to_the_pipeline_that_takes_its_stream():
    taking = Taking()

    async def run(caller):
        answer = await caller.put("/v1/streams/door", content=b"pixels", headers=FRAME)
        assert (answer.status_code, answer.json()["credits"]) == (202, 5)
        assert answer.headers["forebay-credits"] == "5"
        assert taking.heard == [("door", b'{"seq": 3}', b"pixels", "image/jpeg")]
        answer = await caller.post("/v1/streams/door", content=b"pixels", headers=FRAME)
        assert answer.status_code == 202

    call(run, frames=taking)


def test_what_no_pipeline_takes_is_refused_and_reaches_none():
    taking = Taking()

    async def run(caller):
        for method, path, body, status in (
            ("PUT", "/v1/streams/yard", b"x", 404),
            ("PUT", "/v1/streams/", b"x", 404),
            ("PUT", "/v1/streams/door", b"x" * 11, 413),
            ("DELETE", "/v1/streams/door", b"", 405),
            ("PUT", "/v1/streams/door?limit=1", b"x", 422),
        ):
            answer = await caller.request(method, path, content=body, headers=FRAME)
            assert answer.status_code == status, (method, path)
        assert taking.heard == []

    call(run, frames=taking)


def test_who_is_to_send_nothing_hears_for_how_long_and_an_end_is_told():
    taking = Taking(taken=False, reason="held_off", retry_after_s=0.5)

    async def run(caller):
        answer = await caller.put("/v1/streams/door", content=b"x", headers=FRAME)
        assert (answer.status_code, answer.json()["retry_after_s"]) == (429, 0.5)
        taking.error = StreamEndedError("the pipeline has ended")
        answer = await caller.put("/v1/streams/door", content=b"x", headers=FRAME)
        assert (answer.status_code, answer.json()["code"]) == (410, "stream_ended")

    call(run, frames=taking)


def test_a_server_without_pipelines_takes_no_frames():
    async def run(caller):
        assert (await caller.put("/v1/streams/door", content=b"x", headers=FRAME)).status_code == 404

    call(run)
