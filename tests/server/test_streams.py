"""GET /v1/streams: the streams and stages of the pipelines that post on the board of this server."""

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
