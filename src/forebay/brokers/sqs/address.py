"""Address: which region and queues: sqs://REGION/PREFIX, no credentials; and what each queue is called."""

import hashlib
import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from forebay.errors import ConfigError

SCHEME: Final = "sqs"
PREFIX: Final = "forebay"  # what queues' names begin with, unless the URL says another
UNREADABLE: Final = "broker: the URL cannot be read; write sqs://REGION/PREFIX"
NAME_MAX: Final = 80  # characters of a queue's name
WAITING: Final = "task"  # queues that are received from
DEAD: Final = "dead"  # where dead letters lie
_PREFIX: Final = re.compile(r"[A-Za-z0-9_]{1,20}")  # no hyphen: the first one in a name ends the prefix
_REGION: Final = re.compile(r"[a-z0-9-]{1,40}")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST: Final = 20  # hexadecimal digits


class Address(NamedTuple):
    """A region, or an endpoint of one's own, and the prefix of the queues there."""

    region: str | None  # None: what AWS's own configuration says
    prefix: str
    endpoint: str | None  # None: AWS's own for the region
    label: str  # for people

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address a URL names. Raises ConfigError with one line that repeats no credentials."""
        try:
            parts = urlsplit(url)
            query = parse_qsl(parts.query, keep_blank_values=True)
            region, secret, port = parts.netloc or None, parts.username, parts.port
        except ValueError:
            raise ConfigError(UNREADABLE) from None
        if parts.scheme != SCHEME:
            raise ConfigError(f"broker: {parts.scheme[:60]}:// is not Amazon SQS")
        if secret is not None:
            raise ConfigError(
                "broker: sqs:// takes no credentials: the environment, a profile or a role has them"
            )
        if port is not None or parts.fragment or (region is not None and not _REGION.fullmatch(region)):
            raise ConfigError(f"{UNREADABLE}; another server is ?endpoint=http://host:port")
        prefix = parts.path.strip("/") or PREFIX
        if _PREFIX.fullmatch(prefix) is None:
            raise ConfigError(
                f"broker: the prefix of queues must be letters, digits, _ (at most 20), not {prefix[:60]!r}"
            )
        for key, _ in query:
            if key != "endpoint":
                raise ConfigError(f"broker: the URL has an unknown parameter {key[:60]!r}")
        endpoint = _endpoint(query[-1][1]) if query else None
        where = region or "" if endpoint is None else urlsplit(endpoint).netloc
        return cls(region, prefix, endpoint, f"{SCHEME}://{where}/{prefix}")

    def queue(self, task: str, kind: str = WAITING) -> str:
        """Return what the queue of a task is called: no two tasks, kinds and prefixes share a name.

        The task's name stands in it as it is; one with dots or too long is cut and told apart by a digest,
        behind a hyphen, which no task's name begins with.
        """
        begins = f"{self.prefix}-{kind}-"
        if len(begins) + len(task) <= NAME_MAX and _PLAIN.fullmatch(task):
            return begins + task
        digest = hashlib.sha256(task.encode()).hexdigest()[:_DIGEST]
        room = NAME_MAX - len(begins) - _DIGEST - 2
        return f"{begins}-{_OTHER.sub('_', task)[:room]}-{digest}"


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError("broker: endpoint must be http://host:port or https://host")
    return text.rstrip("/") + "/"
