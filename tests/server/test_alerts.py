"""GET /v1/alerts."""

from forebay.core.alerting import ALERTS, Firing
from tests.server.doors import call


class Alarms:
    def firing(self):
        (deep,) = (one for one in ALERTS if one.name == "queue_deep")
        return [Firing(deep, "echo", 812.0, 1_789_000_000.0)]


def test_what_fires_is_told_with_where_to_look():
    async def run(caller):
        assert (await caller.get("/v1/alerts")).json() == {"items": [], "next_cursor": None}
        caller.front.alarms = Alarms()
        (row,) = (await caller.get("/v1/alerts")).json()["items"]
        assert (row["alert"], row["severity"], row["subject"]) == ("queue_deep", "critical", "echo")
        assert (row["signal"], row["value"], row["limit"]) == ("depth", 812.0, 800.0)
        assert row["since"].startswith("2026-09-10T00:26:40") and "30 s" in row["says"] and row["look"]

    call(run)
