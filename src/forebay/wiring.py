"""The composition root: builds everything that a process is made of from Settings; names every adapter."""

import asyncio
import secrets
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.blobs.assembly import open_keeper
from forebay.blobs.keeper import Keeper
from forebay.config import Settings, data_directory, process_environment
from forebay.core.admission import AdmissionPolicy, Gate
from forebay.core.budget import budgets_of
from forebay.core.estimator import Estimator
from forebay.core.retention import Retention
from forebay.crons.runner import CronTerms, Runner
from forebay.engines import open_engine
from forebay.errors import ForebayError, StoreUnavailableError
from forebay.node.afar import Afar
from forebay.node.contradictions import say_contradictions
from forebay.node.frames import AppDescription
from forebay.node.hearing import Hearing
from forebay.node.identity import package_version, worker_name
from forebay.node.neighbours import Neighbours, Recorded
from forebay.node.node import Node, NodePlan
from forebay.node.order import say_order
from forebay.node.plan import plan_of, queue_bounds
from forebay.node.presence import Presence
from forebay.node.roles import Role
from forebay.observe.delivering import of_engine, said_of
from forebay.observe.echo import Echo
from forebay.observe.lanes import LaneMeters
from forebay.observe.logs import Seldom
from forebay.observe.lookout import Lookout
from forebay.observe.metrics import Exposition, Readers, Recent
from forebay.observe.scaling import wanted_by_task
from forebay.pipeline.board import Board
from forebay.pipeline.exposition import of_board
from forebay.pipeline.hosts import Hosts, Terms
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.ports.nodes import nodes_of
from forebay.server.asking import hosts_allowed
from forebay.server.front import Front, Lifecycle
from forebay.server.keyfile import KeysWatch
from forebay.server.links import open_links
from forebay.server.live import Hub
from forebay.server.signals import Signals
from forebay.webhooks.build import open_sender, rules_of
from forebay.webhooks.sender import Sender

if TYPE_CHECKING:  # the door is half of all there is to import: see _describe
    from forebay.server.asgi import Door
    from forebay.server.serve import Server

LAST_TRIES_S = 5.0  # for callbacks on their way; what is cut is sent by the next start
FRAMES_GRACE_S = 2.0  # for frames that wait when the server goes
LAST_ANSWERS_S = 0.3  # for answers on their way when the grace is used up
EXIT_BROKEN = 4


class System:
    """Engine, node and door of one process, built together."""

    def __init__(
        self,
        description: AppDescription,
        settings: Settings,
        *,
        clock: Clock,
        log: Any,
        role: Role = Role.SERVE,
    ) -> None:
        self.role = role
        self.name = worker_name()
        self.settings = settings
        self.clock = clock
        self.log = log
        self.seldom = Seldom(log, now=clock.now)
        self.target = description.app
        self.tasks = {task.name: task for task in description.tasks}
        self.entries = description.crons
        self.pipelines = description.pipelines
        self.signals = Signals()
        self.lifecycle = Lifecycle()
        self.keys = KeysWatch(settings, log=log, clock=clock)
        self.hub = Hub(now=clock.now, epoch=secrets.token_hex(4))
        self.estimators: dict[str, Estimator] = {name: Recorded.of(task) for name, task in self.tasks.items()}
        self.recent = Recent.of(self.tasks)
        self.bounds = queue_bounds(description.tasks, settings)
        self.board = Board(data_directory(settings))
        self.blobs: Keeper
        self.broker: Broker
        self.node: Node | Afar
        self.neighbours: Neighbours
        self.hearing: Hearing
        self.lookout: Lookout
        self.sender: Sender
        self.crons: Runner
        self.hosts: Hosts
        self.door: Door
        self.server: Server | None = None  # none under an ASGI server of somebody else's

    async def start(self) -> None:
        """Open the store, begin the node, listen."""
        await self.open()
        from forebay.server.serve import server_for

        try:
            self.server = server_for(self.door, self.settings, works_only=not self.role.answers)
            await self.server.start()
        except BaseException:
            await self.broker.close()
            raise
        await self.begin()

    async def open(self) -> None:
        """Open the store and build the door, behind which nothing happens yet."""
        from forebay.server.asgi import make_app

        self.broker = await open_engine(
            self.settings, self.clock, on_broken=self._broken, on_gone=self._gone,
            on_delivery=said_of(self.log), on_failure=self._failed,
        )  # fmt: skip
        if self.settings.broker is not None and not self.broker.capabilities.durable:
            self.log.warning("store_not_durable", hint=self.broker.capabilities.lost)
        try:
            self.blobs = open_keeper(self.settings, self.broker, self.clock, on_failure=self._failed)
            meters = self._meters()
            self.node = await self._node(meters)
            self.neighbours = self._neighbours(meters)
            watched = (self.bounds, self.recent.peaks, meters, data_directory(self.settings))
            of_queues = self.role.answers
            self.lookout = Lookout(self.broker, self.clock, self.log, *watched, of_queues=of_queues)
            self.sender = self._sender(meters)
            self.crons = self._runner(meters)
            self.hosts = self._hosts()
            self.door = make_app(self._front(meters))
        except BaseException:
            await self.broker.close()
            raise

    async def begin(self) -> None:
        """Begin to work."""
        self.node.start()
        self.lookout.start()
        if self.role.answers:
            self.sender.start()
            self.crons.start()
        self.hosts.start()
        if isinstance(self.node, Node) and nodes_of(self.broker) is not None:
            self.hearing.start()
        await self.neighbours.start()
        self.keys.start(self.broker)
        self.blobs.start()

    async def drain(self) -> None:
        """Take nothing new, let what runs finish within the grace, hand the rest back, close everything."""
        self.lifecycle.begin_drain()
        self.keys.stop()
        await self.crons.close()
        ends_at = self.clock.now() + self.settings.grace
        await self.hosts.close(min(FRAMES_GRACE_S, self.settings.grace))
        if not self.signals.code:
            await self.node.drain(self.settings.grace, hurry=self.signals.hurry)
        await self.lookout.close()
        await self.node.close()
        await self.neighbours.close()
        self.hearing.close()
        left_s = 0.0 if self.signals.hurry.is_set() else ends_at - self.clock.now()
        await self.sender.close(within_s=min(left_s, LAST_TRIES_S))
        await self.blobs.close()
        if self.server is not None:
            await self._stop_server(self.server, ends_at - self.clock.now())
        await self.broker.close()

    async def _stop_server(self, server: "Server", left_s: float) -> None:
        """Let the last answers out in what is left of the grace; a second signal ends that too."""
        stopping = asyncio.ensure_future(server.stop(within_s=max(left_s, LAST_ANSWERS_S)))
        hurry = asyncio.ensure_future(self.signals.hurry.wait())
        await asyncio.wait({stopping, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not stopping.done():
            await server.stop(within_s=LAST_ANSWERS_S)
        await stopping

    def _meters(self) -> Exposition:
        board, engine = self.board, self.broker
        return Exposition(
            self.tasks,
            now=self.clock.now,
            depths=lambda: self.lookout.depths.seen(),
            coverages=lambda: {name: one.coverage.shares() for name, one in self.estimators.items()},
            recent=self.recent,
            bounds_of=self.bounds,
            workers=lambda: self.node.workers(),  # those of others are scraped where they are
            readers=lambda: Readers(self.hub.readers, self.hub.gaps, self.hub.size_b),
            blobs=lambda: self.blobs.counts(),
            quarantined=lambda: self.broker.quarantine.counts(),
            wanted=partial(wanted_by_task, self.tasks, self.estimators, self.settings.replicas_wait),
            more=lambda: [
                *of_board(board.streams(), board.stages()), *of_engine(engine), *self.lookout.families()
            ],
        )  # fmt: skip

    async def _node(self, meters: Exposition) -> "Node | Afar":
        if not self.role.works:
            return Afar(
                self.broker, self.clock, estimators=self.estimators, on_failure=self._failed,
                on_foretold=meters.foretold,
            )  # fmt: skip
        return Node(
            await self._plan(),
            broker=self.broker,
            clock=self.clock,
            worker=self.name,
            estimators=self.estimators,
            facts=LaneMeters(meters, self.seldom),
            on_failure=self._failed,
            on_broken=self._broken,
            on_restart=lambda lane, reason, facts: self._restarted(meters, lane, reason, facts),
            on_output=Echo(self.log, now=self.clock.now).line,
            feed=self.hub,
        )

    def _neighbours(self, meters: Exposition) -> Neighbours:
        node = self.node
        own = Presence(node, self.estimators, self.clock, self.lifecycle) if isinstance(node, Node) else None
        self.hearing = Hearing(
            self.broker, self.clock, estimators=self.estimators, on_foretold=meters.foretold
        )
        return Neighbours(
            nodes_of(self.broker),
            self.clock,
            name=self.name,
            describe=None if own is None else own.told,
            on_failure=self._failed,
            on_heard=node.heard if isinstance(node, Afar) else self.hearing.take,
        )

    async def _plan(self) -> NodePlan:
        warn = self.log.warning
        say_contradictions(self.tasks.values(), self.settings, warn=warn)
        plan = plan_of(self.target, self.tasks.values(), self.settings)
        of_all = Retention.of(self.settings.retention, self.settings.retention_failed)
        return await say_order(self.broker, plan, of_all=of_all, warn=warn)

    def _runner(self, meters: Exposition) -> Runner:
        terms = CronTerms(tasks=self.tasks, bounds=self.bounds, meters=meters, log=self.log)
        return Runner(self.entries, self.broker, self.clock, terms)

    def _hosts(self) -> Hosts:
        requests = self.node.requests if self.role is Role.SERVE else None
        if self.pipelines and requests is None:  # each machine would take the same frames once more
            self.log.warning("pipelines_not_run", pipelines=list(self.pipelines), hint="`forebay serve` does")
        terms = Terms(
            app=self.target, data=data_directory(self.settings), env=process_environment(), log=self.log,
            tasks=self.tasks, requests=requests, new_id=self.broker.new_id, clock=self.clock,
            on_output=Echo(self.log, now=self.clock.now).line,
        )  # fmt: skip
        return Hosts(self.pipelines, terms)

    def _sender(self, meters: Exposition) -> Sender:
        from forebay.server.render import webhook_json

        return open_sender(
            self.settings,
            self.broker,
            self.clock,
            agent=f"forebay/{package_version()}",
            render=partial(webhook_json, links=open_links(self.settings)),
            count=meters.delivery_tried,
            log=self.log,
        )

    def _front(self, meters: Exposition) -> Front:
        gates = {
            name: Gate(AdmissionPolicy(jobs_max=jobs, bytes_max=size))
            for name, (jobs, size) in self.bounds.items()
        }
        return Front(
            broker=self.broker,
            tasks=self.tasks,
            estimators=self.estimators,
            gates=gates,
            arrivals=self.recent.arrivals,
            peaks=self.recent.peaks,
            settings=self.settings,
            clock=self.clock,
            meters=meters,
            log=self.log,
            node=self.node,
            requests=self.node.requests,
            blobs=self.blobs,
            neighbours=self.neighbours,
            sender=self.sender if self.role.answers else None,
            crons=self.crons,
            board=self.board,
            alarms=self.lookout.alarms,
            frames=self.hosts,
            links=open_links(self.settings),
            callbacks=rules_of(self.settings),
            budgets=budgets_of(self.settings.budgets),
            lifecycle=self.lifecycle,
            hub=self.hub,
            version=package_version(),
            hosts_allowed=hosts_allowed(self.settings, keyed=self.keys.watchman.keyed),
            watchman=self.keys.watchman,
            on_store_broken=self._broken,
        )

    def _broken(self, error: BaseException) -> None:
        if not self.signals.code:
            self.log.error("store_broken", error=str(error), hint="the process ends; start it again")
            self.signals.broken(EXIT_BROKEN)

    def _gone(self, error: ForebayError) -> None:
        self.seldom.error("store_gone", error=str(error))
        self.lifecycle.store_failed(error, now=self.clock.now())

    def _failed(self, verb: str, error: BaseException) -> None:
        self.seldom.error("store_failed", verb=verb, error=str(error))
        if isinstance(error, StoreUnavailableError):
            self.lifecycle.store_failed(error, now=self.clock.now())

    def _restarted(self, meters: Exposition, lane: str, reason: str, facts: Mapping[str, object]) -> None:
        self.log.warning("child_restarted", lane=lane, reason=reason, **facts)
        assert isinstance(self.node, Node)
        for name in self.node.supervisors[lane].lane.specs:
            meters.for_task(name).restarted(reason)
