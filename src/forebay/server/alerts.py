"""GET /v1/alerts: which of the shipped alerts fire now, as this server sees it."""

import msgspec
from fastapi import Request, Response

from forebay.core.alerting import Firing
from forebay.server.front import Front
from forebay.server.routing import Route, json_response
from forebay.server.times import stamp


class AlertView(msgspec.Struct):
    """One alert that fires: `value` is what was seen last of the `signal`, which should not be above `limit`;
    `look` says where to look first."""

    alert: str
    severity: str
    subject: str
    signal: str
    value: float
    limit: float
    since: str
    says: str
    look: str


class AlertList(msgspec.Struct):
    """All that fire, the critical ones first."""

    items: list[AlertView]
    next_cursor: str | None = None


VIEWS = (AlertView, AlertList)


class AlertDesk:
    """What should wake somebody."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        return (Route("GET", "/v1/alerts", self.alerts, "List the alerts that fire", "health", "AlertList"),)

    async def alerts(self, _: Request) -> Response:
        """Answer what fires."""
        alarms = self._front.alarms
        return json_response(AlertList([_view(one) for one in (() if alarms is None else alarms.firing())]))


def _view(one: Firing) -> AlertView:
    alert = one.alert
    return AlertView(
        alert.name, alert.severity.value, one.subject, alert.signal.value, round(one.value, 6), alert.limit,
        stamp(one.since), one.text, alert.look,
    )  # fmt: skip
