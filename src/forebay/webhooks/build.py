"""open_sender, rules_of: a sender out of settings."""

from collections.abc import Callable
from typing import Protocol

from forebay.config import Settings, data_directory
from forebay.core.callback import CallbackRules
from forebay.core.delivering import DeliveryPolicy
from forebay.core.job import JobRecord
from forebay.core.retention import Retention
from forebay.core.signing_keys import read_keys
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.secret import own_secret
from forebay.webhooks.sender import Log, Postman, Sender, Terms

KEY_FILE = "webhook_secret"
WINDOW_S = 86_400.0  # a delivery is tried for so long, and never longer than its job is kept


class Render(Protocol):
    """What makes the body of a callback."""

    def __call__(self, record: JobRecord, *, now: float) -> bytes:
        """Return a finished job as JSON."""
        ...


def rules_of(settings: Settings) -> CallbackRules:
    """Return which callback URLs the settings allow."""
    return CallbackRules(settings.webhooks_allow_private, frozenset(settings.webhooks_ports))


def open_sender(
    settings: Settings,
    broker: Broker,
    clock: Clock,
    *,
    agent: str,
    render: Render,
    count: Callable[[str], None],
    log: Log,
) -> Sender:
    """Return a sender that signs with the secret of the settings, else with the store's own.

    Raises ConfigError when the file of the own secret cannot be used.
    """
    if settings.webhook_secret is not None:
        keys = read_keys(settings.webhook_secret.reveal())
    else:
        keys, path, made = own_secret(data_directory(settings), KEY_FILE)
        if made:
            log.info("webhook_secret_made", file=str(path), hint="give it to the receivers of callbacks")
    rules = rules_of(settings)
    kept = Retention.of(settings.retention, settings.retention_failed)
    terms = Terms(
        keys=keys,
        rules=rules,
        agent=agent,
        body_of=lambda record: render(record, now=clock.now()),
        count=count,
        policy=DeliveryPolicy(window_s=min(WINDOW_S, *kept)),
    )

    def postman() -> Postman:
        # The HTTP client is half a hundred modules: a server without callbacks never loads it.
        from forebay.webhooks.address import Resolver
        from forebay.webhooks.post import Poster

        return Poster(Resolver(), rules, now=clock.now)

    return Sender(broker, clock, postman, terms, log)
