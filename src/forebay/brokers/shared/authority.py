"""check_escapes: a password whose signs are not escaped ends early in its URL; the rest would be shown."""

import re

from forebay.errors import ConfigError

_BEHIND = re.compile(r"://[^/?#]*([^?]*)(.*)", re.DOTALL)


def check_escapes(url: str) -> None:
    """Raise ConfigError where an @ stands behind the host: what is before it was meant as a password.

    The line repeats nothing of the URL.
    """
    found = _BEHIND.search(url)
    if found is None:
        return
    names = [pair.partition("=")[0] for pair in found[2].split("&")]  # values may have it
    if "@" in found[1] or any("@" in name for name in names):
        raise ConfigError(
            "broker: the URL has an @ behind its host: in a user name or password write @ as %40, / as %2F,"
            " ? as %3F and # as %23"
        )
