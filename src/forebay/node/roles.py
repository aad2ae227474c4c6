"""Role: what one process does of all that there is to do, and on which engines it may be done apart."""

from enum import Enum

from forebay.config import Settings
from forebay.errors import ConfigError


class Role(Enum):
    """SERVE does everything; API takes and answers, WORK runs handlers, both on an engine that is shared."""

    SERVE = "serve"
    API = "api"
    WORK = "work"

    @property
    def works(self) -> bool:
        """Whether handlers run here."""
        return self is not Role.API

    @property
    def answers(self) -> bool:
        """Whether jobs are taken here, callbacks sent and cron entries submitted."""
        return self is not Role.WORK


def check_role(role: Role, settings: Settings) -> None:
    """Raise ConfigError with one line when the engine of the settings is not for several processes."""
    engine = settings.broker or "sqlite:"
    if role is not Role.SERVE and engine.startswith("sqlite:"):
        raise ConfigError(
            f"broker: `forebay {role.value}` needs an engine that processes share, like"
            " postgresql://user@host/database; the embedded one has one owner: `forebay serve`"
        )
