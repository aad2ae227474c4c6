"""Store, Tx: scripts on the server: its time, the counts they changed, errors in a line."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from forebay.brokers.redis.address import redis_module, told
from forebay.brokers.redis.connections import Connection, Connections, ask, gone, is_ended
from forebay.brokers.redis.packing import pack
from forebay.brokers.redis.scripts import script
from forebay.brokers.shared.news import News
from forebay.core.job import AGEING_S
from forebay.core.reserve import INTERACTIVE
from forebay.core.retention import Keeping
from forebay.core.turns import NO_DEADLINE_S
from forebay.errors import ForebayError, StoreBrokenError, StoreFullError, StoreUnavailableError
from forebay.ports.clock import Clock

T = TypeVar("T")
ALIVE_S: Final = 0.5  # a connection that answered so lately is taken to be alive
STALE_TRIES_MAX: Final = 20  # of a step that another server was ahead of
_CONSTS: Final = (AGEING_S, NO_DEADLINE_S, float(INTERACTIVE))

Counts = Sequence[tuple[str, int, int, str, int, int]]  # task, priority, state, tenant, jobs, bytes


class Tx:
    """A few scripts one after another on one connection. Each of them is stored or not by itself."""

    __slots__ = ("_connection", "_store", "news", "now", "skew_s")

    def __init__(self, store: "Store", connection: Connection, now: float, skew_s: float) -> None:
        self._store = store
        self._connection = connection
        self.now = now  # of the server
        self.skew_s = skew_s  # what the caller's clock is ahead of it
        self.news = News()

    async def run(self, name: str, /, **terms: Any) -> Any:
        """Run a script that writes, durably, and return its answer."""
        sent_at = self._store.clock.now()
        answer = await self._store.call(self._connection, name, terms, self.now)
        at, counts, due_at, owed, found = answer
        self._store.took(counts, None if due_at is None else float(due_at))
        self.skew_s = self._store.answered(self._connection, float(at), sent_at)
        self.now = max(self.now, float(at))
        self.news.owed = self.news.owed or bool(owed)
        return found

    async def read(self, name: str, /, **terms: Any) -> Any:
        """Run a script that only reads, behind what was written before."""
        return await self._store.call(self._connection, name, terms, self.now)


Work = Callable[[Tx], Awaitable[T]]


class Store:
    """Scripts in turn for whoever writes, and scripts of their own for whoever reads."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        keeping: Keeping,
        *,
        given_time: bool,
        stands_at: float | None,
        on_counts: Callable[[Counts], None],
    ) -> None:
        self.connections = connections
        self.clock = clock
        self._keeping = keeping
        self._given_time = given_time  # the time is that of the caller
        self._stands_at = stands_at  # for checks: the time of the server
        self._on_counts = on_counts
        self._latest = 0.0  # of given times
        self.skew_s = 0.0  # as the newest call found it
        self.due_at: float | None = None  # of the next delivery, by the server's clock

    def seen_at(self, now: float) -> float:
        """Return the server's time for a caller at `now`, without asking it: good for retention."""
        return self._tick(now) if self._given_time else now - self.skew_s

    async def write(self, work: Work[T], *, now: float) -> tuple[T, News]:
        """Run `work` and return what it returns, and what there is to tell.

        Raises StoreUnavailableError: the outcome is unknown then, or nothing was stored.
        """
        connection, at = await self._begin(now)
        whole = False
        tx = Tx(self, connection, at, self.skew_s)
        try:
            answer = await work(tx)
            whole = True
        except ForebayError:
            whole = True
            raise
        except (redis_module().exceptions.RedisError, *gone()) as error:
            whole = not isinstance(error, gone())
            raise self._mapped(error) from error
        finally:
            await self.connections.give(connection, whole=whole)
        return answer, tx.news

    async def read(self, name: str, now: float = 0.0, /, **terms: Any) -> Any:
        """Run one script that only reads; once more on a new connection where one was stale."""
        for fresh in (False, True):
            connection = await self.connections.take()
            whole = False
            try:
                answer = await self.call(connection, name, terms, self.seen_at(now))
                whole = True
            except (redis_module().exceptions.RedisError, *gone()) as error:
                whole = not isinstance(error, gone())
                if fresh or whole:
                    raise self._mapped(error) from error
            else:
                return answer
            finally:
                await self.connections.give(connection, whole=whole)
            await self.connections.forget_free()
        raise AssertionError("unreachable")

    async def ask(self, *command: Any) -> Any:
        """Ask the server itself."""
        connection = await self.connections.take()
        whole = False
        try:
            answer = await ask(connection, *command)
            whole = True
        except (redis_module().exceptions.RedisError, *gone()) as error:
            whole = not isinstance(error, gone())
            raise self._mapped(error) from error
        else:
            return answer
        finally:
            await self.connections.give(connection, whole=whole)

    async def rewrite(self) -> None:
        """Have the server begin to write its files anew; none is written where it keeps none."""
        connection = await self.connections.take()
        whole = False
        try:
            about = await ask(connection, "INFO", "persistence")
            command = "BGREWRITEAOF" if b"aof_enabled:1" in about else "BGSAVE"
            await ask(connection, command, *(["SCHEDULE"] if command == "BGSAVE" else []))
            whole = True
        except (redis_module().exceptions.RedisError, *gone()) as error:
            raise self._mapped(error) from error
        finally:
            await self.connections.give(connection, whole=whole)

    async def call(self, connection: Connection, name: str, terms: Mapping[str, Any], now: float) -> Any:
        """Run a script on a connection; a server that does not know it is told its text."""
        one, keeping, prefix = script(name), self._keeping, self.connections.address.prefix
        by_task = {task: (float(own.ended_s), float(own.dead_s)) for task, own in keeping.by_task.items()}
        keep = (float(keeping.of_all.ended_s), float(keeping.of_all.dead_s), by_task)
        asked = pack({**terms, "keep": keep, "consts": _CONSTS})
        time = repr(now) if self._given_time or self._stands_at is not None else ""
        rest = ("1", f"{prefix}meta", prefix, time, asked)
        try:
            return await ask(connection, "EVALSHA", one.sha, *rest)
        except redis_module().exceptions.NoScriptError:
            return await ask(connection, "EVAL", one.text, *rest)

    def took(self, counts: Sequence[Any], due_at: float | None) -> None:
        """Take in what a script changed."""
        self.due_at = due_at
        self._on_counts([(task.decode(), *line_of(field), jobs, size) for task, field, jobs, size in counts])

    def answered(self, connection: Connection, at: float, sent_at: float) -> float:
        """A connection has answered what was sent then, at this time of the server. Returns what our clock is
        ahead of it, at least: so no lease is taken to last longer than it does."""
        if not self._given_time and self._stands_at is None:
            self.connections.answered_at[connection] = self.clock.now()
            self.skew_s = sent_at - at
        return self.skew_s

    async def _begin(self, now: float) -> tuple[Connection, float]:
        """Return a connection that is alive, and the time. Nothing is written yet: a stale connection costs
        another try and nothing else. One that answered a moment ago is not asked."""
        for fresh in (False, True):
            connection = await self.connections.take(kept=True)
            answered_at = self.connections.answered_at.get(connection)
            if answered_at is not None and not is_ended(connection):
                now = self.clock.now()
                if 0.0 <= now - answered_at < ALIVE_S:
                    return connection, now - self.skew_s
            try:
                if not self._given_time:
                    now = self.clock.now()  # a caller's may have waited for its turn
                seconds, micros = await ask(connection, "TIME")
            except BaseException as error:
                await self.connections.give(connection, whole=False)
                if not isinstance(error, (redis_module().exceptions.RedisError, *gone())):
                    raise
                if fresh:
                    raise self._mapped(error) from error
                await self.connections.forget_free()
            else:
                if self._given_time:
                    return connection, self._tick(now)
                at = float(seconds) + float(micros) / 1e6 if self._stands_at is None else self._stands_at
                self.skew_s = now - at
                return connection, at
        raise AssertionError("unreachable")

    def _tick(self, now: float) -> float:
        if now > self._latest:
            self._latest = now
        return self._latest

    def _mapped(self, error: BaseException) -> Exception:
        label, text = self.connections.address.label, told(error)
        errors = redis_module().exceptions
        if isinstance(error, errors.OutOfMemoryError) or text.startswith("OOM"):
            return StoreFullError(f"{label}: {text}")
        if "WRONGTYPE" in text or "user_script:" in text:
            return StoreBrokenError(f"{label}: its keys are not what this version makes: {text}")
        return StoreUnavailableError(f"{label}: {text}", retry_after_s=1.0)


def line_of(field: bytes) -> tuple[int, int, str]:
    """Return priority, state and tenant of a count."""
    priority, state, tenant = field.split(b"\0", 2)
    return int(priority), int(state), tenant.decode("utf-8", "surrogatepass")


def pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of a flat list."""
    return list(zip(flat[::2], flat[1::2], strict=True))
