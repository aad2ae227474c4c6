"""Hatch: plain requests are refused, let in and answered here, on their connection, without ASGI.

Under overload most of what a refusal costs is the machinery that asks about it. What is not plain goes the
long way through the door, and both ways ask `WayIn`, or the `Decider` of submissions, the same questions and
give the same answers.
"""

from collections.abc import Mapping

from forebay.core.task import TaskSpec
from forebay.errors import ForebayError
from forebay.server import job_exchange, request_exchange
from forebay.server.access import TENANT_HEADER
from forebay.server.answer import DRAINED_BY_SERVER_B
from forebay.server.asking import Doorman, Heads, accepts_events
from forebay.server.budgets import forget_budget
from forebay.server.caller import LOCAL, Caller, set_caller
from forebay.server.deciding import Decider
from forebay.server.exchange import Connection, Exchange
from forebay.server.front import Front
from forebay.server.job_exchange import AnswerRest, JobExchange
from forebay.server.limits import HEADERS_BYTES_MAX
from forebay.server.request_exchange import AnswerEnded, RequestExchange
from forebay.server.submit import Submitter
from forebay.server.waits import Waits, lain_s
from forebay.server.way_in import WayIn

# Whoever sends one of these wants something that is not plain, or is to be looked at twice.
NOT_PLAIN = frozenset(
    {b"expect", b"transfer-encoding", b"content-encoding", b"origin", b"sec-fetch-site", b"forebay-budget"}
    | {b"prefer"}
)
_JSON_TYPES = frozenset(
    {b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"}
)
_LENGTH_DIGITS_MAX = 6


class Hatch:
    """Takes plain requests and plain submissions of one door."""

    def __init__(
        self,
        front: Front,
        doorman: Doorman,
        way_in: WayIn,
        decider: Decider,
        submitter: Submitter,
        *,
        answer_ended: AnswerEnded,
        answer_rest: AnswerRest,
    ) -> None:
        self.front = front
        self._way_in = way_in
        self._decider = decider
        self._submitter = submitter
        self._answer_ended = answer_ended
        self._answer_rest = answer_rest
        self._doorman = doorman
        self._waits = Waits()
        self._specs: Mapping[bytes, TaskSpec | None] = {
            job_exchange.ADDRESS: None,  # the body names the task
            **{request_exchange.ADDRESS + name.encode(): spec for name, spec in front.tasks.items()},
        }
        self._length_max = min(DRAINED_BY_SERVER_B, front.settings.body_bytes_max)

    def serves(self, url: bytes) -> bool:
        """Say whether a POST to this address may be plain."""
        return url in self._specs

    def knocked(self, who: int) -> None:
        """Somebody has connected."""
        requests = self.front.requests
        if requests is not None:
            requests.knocks.came(who, now=self.front.clock.now())

    def spoke(self, who: int) -> None:
        """Their first bytes have come, or they have gone."""
        requests = self.front.requests
        if requests is not None:
            requests.knocks.spoke(who)

    def lain_s(self, connection: Connection, *, first: bool) -> float:
        """Return for how many seconds the request whose head has come had been in its socket, 0 where it is
        no request or that may not matter. `first`: of its connection."""
        if not connection.url.startswith(request_exchange.ADDRESS):
            return 0.0
        loop_s, now = connection.loop.time(), self.front.clock.now()
        asks = self._waits.may_matter(first=first, loop_s=loop_s, now=now)
        return lain_s(connection.transport) if asks else 0.0

    def begin(self, connection: Connection) -> Exchange | None:
        """Return the exchange of the POST whose head has come, answered already when that is a refusal.

        None: it is not plain, and nothing of it was counted.
        """
        heads: Heads = dict(connection.headers)
        length = self._length(heads, len(connection.headers))
        if length is None:
            return None
        now = self.front.clock.now()
        try:
            who = self._caller(connection, heads, now)
            if who.tenant in self.front.watchman.quotas:  # every answer tells what is left of its rates
                return None
            spec = self._specs[connection.url]
            if spec is None:
                return self._begin_job(connection, heads, who, now)
            return self._begin_request(connection, heads, who, spec, length, now)
        except ForebayError:  # the long way says it
            return None

    def _begin_job(self, connection: Connection, heads: Heads, who: Caller, now: float) -> JobExchange | None:
        if not self._decider.may_decide(now=now):
            return None
        return JobExchange(
            connection, self.front, heads, who, self._decider, self._submitter, self._answer_rest
        )

    def _begin_request(
        self, connection: Connection, heads: Heads, who: Caller, spec: TaskSpec, length: int, now: float
    ) -> RequestExchange | None:
        way_in, requests = self._way_in, self.front.requests
        asked = way_in.asked(spec, heads, who.tenant, length, now=now, lain_s=connection.lain_s)
        if requests is None or not way_in.is_open(spec.name, now=now):
            return None
        forget_budget()
        set_caller(who)
        way_in.arrived(spec.name, now=now)
        exchange = RequestExchange(
            connection, self.front, heads, who, asked, requests, way_in, self._answer_ended
        )
        refused = way_in.look(requests, asked)
        if refused is not None:
            exchange.refuse(way_in.refusal(refused, asked))
        return exchange

    def _caller(self, connection: Connection, heads: Heads, now: float) -> Caller:
        """Return who asks, as the door would. Raises what it would raise."""
        watchman = self.front.watchman
        if not watchman.watches and TENANT_HEADER not in heads:
            return LOCAL
        asked = {"method": "POST", "path": connection.url.decode("ascii")}
        return watchman.admit(asked, heads, now=now)

    def _length(self, heads: Heads, count: int) -> int | None:
        """Return how long the body is, None where anything about the head is not plain."""
        if len(heads) != count or not NOT_PLAIN.isdisjoint(heads):
            return None
        told = heads.get(b"content-length", b"")
        if heads.get(b"content-type") not in _JSON_TYPES or not told.isdigit():
            return None
        if len(told) > _LENGTH_DIGITS_MAX or int(told) > self._length_max:
            return None
        if not self._doorman.knows(heads.get(b"host")) or accepts_events(heads):
            return None
        if len(b"".join(heads)) + len(b"".join(heads.values())) > HEADERS_BYTES_MAX:
            return None
        return int(told)
