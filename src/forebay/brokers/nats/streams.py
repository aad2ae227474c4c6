"""Streams: what JetStream keeps: a work queue of hints, with a consumer for each task, and dead letters.

What is there already is left as it is, so that an operator may set limits of their own; it is refused where
hints would be lost or come to nobody.
"""

import contextlib
import hashlib
import re
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from forebay.brokers.nats.address import Address
from forebay.brokers.nats.link import Link, Unanswered
from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import BODY_MAX

SERVER_MIN: Final = (2, 9)
HINTS_MAX: Final = 1_000_000  # that wait; more are refused and announced again later
HINTS_BYTES_MAX: Final = 256 << 20
DEAD_MAX: Final = 100_000  # dead letters of all tasks; the oldest go
DEAD_OF_TASK_MAX: Final = 10_000
DEAD_BYTES_MAX: Final = 64 << 20
DEAD_AGE_S: Final = 14 * 86_400
MESSAGE_BYTES_MAX: Final = 4 * BODY_MAX  # of one message with its headers: larger is none of ours
ACK_WAIT_S: Final = 30  # a hint that nobody acknowledges comes again after that
HELD_MAX: Final = 10_000  # hints of one task that are with workers at a time
WAITING_MAX: Final = 4_096  # requests of workers that wait for hints of one task
TOKEN_MAX: Final = 200  # letters; consumers have directories of that name
_NS: Final = 1_000_000_000
_NO_STREAM, _NO_CONSUMER = 10059, 10014  # codes of JetStream's errors
_JSON: Final = msgspec.json.Decoder(dict[str, Any])


def token(task: str) -> str:
    """Return a task's name as one part of a subject, which is also its consumer's; each task has its own."""
    # A dot parts subjects and is common in names, so it has one letter; no name of `@app.task` needs more.
    # Servers (2.9) take what stands behind % in a consumer's name for a format, and answer nonsense.
    encoded = (
        quote(task.replace(".", "\0"), safe="").replace("~", "%7E").replace("%00", "=").replace("%", "~")
    )
    if len(encoded) <= TOKEN_MAX and "\0" not in task:
        return encoded
    return f"~~{hashlib.sha256(task.encode()).hexdigest()}"  # nothing else begins so


class Names(NamedTuple):
    """What everything under one prefix is called."""

    prefix: str

    @property
    def hints(self) -> str:
        """The stream of hints."""
        return self.prefix

    @property
    def dead(self) -> str:
        """The stream of dead letters."""
        return f"{self.prefix}-dead"

    def hint(self, token_: str) -> str:
        """Return the subject of a task's hints."""
        return f"{self.prefix}.hint.{token_}"

    def letter(self, token_: str) -> str:
        """Return the subject of a task's dead letters."""
        return f"{self.prefix}.dead.{token_}"

    def next(self, token_: str) -> str:
        """Return the subject to ask for hints of a task."""
        return f"$JS.API.CONSUMER.MSG.NEXT.{self.prefix}.{token_}"

    def configs(self, replicas: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return how the two streams are made."""
        hints = {
            "name": self.hints,
            "subjects": [self.hint("*")],
            "retention": "workqueue",
            "discard": "new",
            "max_msgs": HINTS_MAX,
            "max_bytes": HINTS_BYTES_MAX,
        }
        dead = {
            "name": self.dead,
            "subjects": [self.letter("*")],
            "retention": "limits",
            "discard": "old",
            "max_msgs": DEAD_MAX,
            "max_msgs_per_subject": DEAD_OF_TASK_MAX,
            "max_bytes": DEAD_BYTES_MAX,
            "max_age": DEAD_AGE_S * _NS,
        }
        common = {"storage": "file", "num_replicas": replicas, "max_msg_size": MESSAGE_BYTES_MAX}
        return {**hints, **common}, {**dead, **common}


class Refused(Exception):
    """JetStream answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("description", error))[:300])
        self.code = error.get("err_code")


async def call(link: Link, verb: str, config: dict[str, Any] | None = None) -> dict[str, Any]:
    """Call JetStream's API. Raises Refused, Unanswered, or DeliveryUnavailableError."""
    body = b"" if config is None else msgspec.json.encode(config)
    return read(await link.ask(f"$JS.API.{verb}", body))


def read(data: bytes) -> dict[str, Any]:
    """Return what JetStream said. Raises Refused."""
    try:
        answer: dict[str, Any] = _JSON.decode(data)
    except msgspec.MsgspecError:
        raise Refused({"description": "it answered what is not JetStream's"}) from None
    if answer.get("error"):
        raise Refused(answer["error"])
    return answer


async def check_server(link: Link) -> None:
    """Raise DeliveryUnavailableError, with one line, where the server cannot be used."""
    numbers = re.findall(r"\d+", link.server)[:2]
    if tuple(int(number) for number in numbers) < SERVER_MIN:
        raise link.unavailable(
            f"NATS {link.server.removeprefix('<nats server v').rstrip('>')} is too old;"
            f" {'.'.join(map(str, SERVER_MIN))} or newer is needed"
        )
    try:
        await call(link, "INFO")
    except Unanswered:
        raise link.unavailable("JetStream is not enabled there: start the server with it (-js)") from None
    except Refused as error:
        raise link.unavailable(str(error)) from None


async def make_streams(link: Link, address: Address) -> None:
    """See that both streams are there and of use. What was begun is removed when it cannot be ended.

    Raises DeliveryUnavailableError with one line.
    """
    made: list[str] = []
    try:
        for config in Names(address.prefix).configs(address.replicas):
            await _make_stream(link, config, made)
    except (Refused, Unanswered, DeliveryUnavailableError) as error:
        with contextlib.suppress(DeliveryUnavailableError):
            for name in made:
                await _call_quietly(link, f"STREAM.DELETE.{name}")
        if isinstance(error, DeliveryUnavailableError):
            raise
        raise link.unavailable(str(error) or "JetStream does not answer there") from None


async def _make_stream(link: Link, config: dict[str, Any], made: list[str]) -> None:
    name = config["name"]
    try:
        there = (await call(link, f"STREAM.INFO.{name}"))["config"]
    except Refused as error:
        if error.code != _NO_STREAM:
            raise
        made.append(name)
        try:
            await call(link, f"STREAM.CREATE.{name}", config)
        except Refused as refused:
            made.remove(name)
            raise link.unavailable(f"the stream {name!r} cannot be made: {refused}") from None
        return
    for key in ("retention", "subjects"):
        if there.get(key) != config[key]:
            raise link.unavailable(
                f"there is another stream {name!r} ({key}: {there.get(key)}); name a prefix= in the URL"
            )


async def make_consumer(link: Link, address: Address, token_: str) -> None:
    """See that the consumer of a task is there and of use, and the streams too.

    Raises DeliveryUnavailableError with one line.
    """
    names = Names(address.prefix)
    place = f"{names.hints}.{token_}"
    try:
        try:
            there = (await call(link, f"CONSUMER.INFO.{place}"))["config"]
        except Refused as error:
            if error.code == _NO_STREAM:
                await make_streams(link, address)
            elif error.code != _NO_CONSUMER:
                raise
            await call(link, f"CONSUMER.DURABLE.CREATE.{place}", _consumer(names, token_))
            return
    except Refused as error:
        raise link.unavailable(f"the consumer {token_!r}: {error}") from None
    except Unanswered:
        raise link.unavailable("JetStream does not answer there") from None
    wanted = {"filter_subject": names.hint(token_), "ack_policy": "explicit", "deliver_subject": None}
    for key, value in wanted.items():
        if there.get(key) != value:
            raise link.unavailable(f"there is another consumer {token_!r} ({key}: {there.get(key)})")


def _consumer(names: Names, token_: str) -> dict[str, Any]:
    config = {
        "durable_name": token_,
        "filter_subject": names.hint(token_),
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": ACK_WAIT_S * _NS,
        "max_deliver": -1,
        "max_ack_pending": HELD_MAX,
        "max_waiting": WAITING_MAX,
    }
    return {"stream_name": names.hints, "config": config}


async def depth(link: Link, address: Address, token_: str) -> int:
    """Return how many hints of a task wait or are held. Raises Refused or Unanswered."""
    told = await call(link, f"CONSUMER.INFO.{address.prefix}.{token_}")
    return int(told["num_pending"]) + int(told["num_ack_pending"])


async def remove(link: Link, address: Address, token_: str) -> None:
    """Remove the consumer of a task, its hints and its dead letters; after the last one the streams too."""
    names = Names(address.prefix)
    await _call_quietly(link, f"CONSUMER.DELETE.{names.hints}.{token_}")
    await _call_quietly(link, f"STREAM.PURGE.{names.hints}", {"filter": names.hint(token_)})
    await _call_quietly(link, f"STREAM.PURGE.{names.dead}", {"filter": names.letter(token_)})
    await remove_streams(link, address, idle=True)


async def remove_streams(link: Link, address: Address, *, idle: bool) -> None:
    """Remove both streams; `idle`: only where they hold nothing, have no consumer, and are as made here."""
    configs = Names(address.prefix).configs(address.replicas)
    for config in configs if idle else ():
        try:
            told = await call(link, f"STREAM.INFO.{config['name']}")
        except (Refused, Unanswered):
            continue
        if any(told["config"].get(key) != value for key, value in config.items()):
            return
        if told["state"]["messages"] or told["state"]["consumer_count"]:
            return
    for config in configs:
        await _call_quietly(link, f"STREAM.DELETE.{config['name']}")


async def _call_quietly(link: Link, verb: str, config: dict[str, Any] | None = None) -> None:
    """Call, where it is all the same that there is no such thing. Raises DeliveryUnavailableError else."""
    try:
        await call(link, verb, config)
    except Unanswered:
        return
    except Refused as error:
        if error.code not in {_NO_STREAM, _NO_CONSUMER}:
            raise link.unavailable(str(error)) from None
