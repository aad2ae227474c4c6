"""Caller: on whose behalf a request is answered; set once by the door, asked wherever jobs are touched."""

from contextvars import ContextVar
from typing import Final, NamedTuple

from forebay.core.tenant import EVERY_SCOPE, Scope


class Caller(NamedTuple):
    """Who asks. `own` is the one tenant whose things it may see and change; None: everybody's."""

    tenant: str  # of what it submits
    own: str | None
    scopes: frozenset[Scope]
    key: bytes = b""  # digest of the key that was shown

    def may(self, scope: Scope) -> bool:
        """Say whether the caller has a scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def sees(self, tenant: str) -> bool:
        """Say whether things of a tenant exist for this caller."""
        return self.own is None or self.own == tenant


LOCAL: Final = Caller("", None, EVERY_SCOPE)  # where no keys are configured
NOBODY: Final = Caller("", "\0", frozenset())  # on an open route; no tenant has this name

# A variable of the context and not an argument: a handler that forgets to pass it on would see everything.
_CALLER: ContextVar[Caller] = ContextVar("caller", default=LOCAL)
caller = _CALLER.get


def set_caller(who: Caller) -> None:
    """Let the rest of this request be answered for `who`. Costs nothing when that is so already."""
    if _CALLER.get() is not who:
        _CALLER.set(who)
