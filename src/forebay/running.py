"""serve, described: from an application and settings to a process that runs until a signal."""

import asyncio
import importlib
import os

import uvloop

from forebay.clock import SystemClock
from forebay.config import Settings, process_environment
from forebay.errors import AppError, ConfigError, ForebayError
from forebay.node.describe import describe
from forebay.node.frames import AppDescription
from forebay.node.identity import package_version
from forebay.node.interpreter import settle_memory
from forebay.node.node import Node
from forebay.node.roles import Role, check_role
from forebay.observe.logs import make_log
from forebay.observe.voice import Voice, banner
from forebay.server.signals import in_time, leave_on_signals
from forebay.values import of_system
from forebay.wiring import System

DESCRIBE_HEAD_START_S = 0.02  # for the start of its process
EXIT_USAGE, EXIT_CANNOT_START = 2, 3


def serve(target: str, settings: Settings, role: Role = Role.SERVE) -> int:
    """Serve an application until a signal: API, embedded store and workers in one process, or a part of it.

    Returns the exit code: 0 after a drain, 3 when it cannot start, 4 when the store broke. A second
    SIGTERM, SIGINT or SIGHUP during the drain makes it immediate.
    """
    return uvloop.run(_serve(target, settings, role))


async def _serve(target: str, settings: Settings, role: Role) -> int:
    leave_on_signals()
    clock = SystemClock()
    log = make_log(now=clock.now, form=settings.log_format, level=settings.log_level)
    voice = Voice(settings.log_format, now=clock.now)
    try:
        check_role(role, settings)
        description = await described(target)
        system = System(description, settings, clock=clock, log=log, role=role)
        system.signals.install()
        await system.start()
    except ForebayError as error:
        voice.say(f"forebay: {error}", "cannot_start", code=error.code, error=str(error))
        return EXIT_USAGE if isinstance(error, ConfigError | AppError) else EXIT_CANNOT_START
    except OSError as error:  # of a file that may not be read, say: whatever it is, it is one line
        voice.say(f"forebay: {of_system(error)}", "cannot_start", code="os", error=of_system(error))
        return EXIT_CANNOT_START
    settle_memory()
    facts = _facts(system)
    voice.say(banner(facts), "serving", **facts)
    await system.signals.drain.wait()
    if not system.signals.code:
        text = f"forebay: draining, up to {settings.grace:g} s; a second signal ends it at once"
        voice.say(text, "draining", grace_s=settings.grace)
    limit_s = settings.grace + 30.0
    if not await in_time(system.drain(), limit_s=limit_s):
        text = "forebay: the drain did not end in time; leaving. What ran will be handed out again"
        voice.say(text, "drain_cut", limit_s=limit_s)
    return system.signals.code


async def described(target: str) -> AppDescription:
    """Describe the application in its process, and import the door here meanwhile: a restart is shorter.

    Raises AppError with one line for what is none, or has no tasks.
    """
    describing = asyncio.ensure_future(describe(target, env=process_environment()))
    await asyncio.wait({describing}, timeout=DESCRIBE_HEAD_START_S)
    for module in ("forebay.server.asgi", "forebay.server.serve"):
        importlib.import_module(module)
    description = await describing
    if not description.tasks:
        raise AppError(f"{target}: the application has no tasks")
    return description


def _replicas(node: Node) -> int:
    """Return how many children there are to be at the start."""
    return sum(not slot.parked for one in node.supervisors.values() for slot in one.slots)


def _facts(system: System) -> dict[str, object]:
    server, node = system.server, system.node
    assert server is not None
    admin = server.beside
    return {
        **({} if system.role is Role.SERVE else {"role": system.role.value, "node": system.name}),
        "version": package_version(),
        "url": server.url,
        **({} if admin is None else {"admin_url": admin.url}),
        "tasks": list(system.tasks),
        "replicas": _replicas(node) if isinstance(node, Node) else 0,
        "data": str(system.settings.data),
        "pid": os.getpid(),
    }
