"""Which callback URLs and which addresses may be told of a job's end: read strictly, decided without IO.

A URL that two programs read differently is the way around every such check. So the spelling is narrow, the
parts found here are the ones that are connected to, and the address is checked again when it is known.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple

URL_LENGTH_MAX = 2048
Address = IPv4Address | IPv6Address

_URL = re.compile(r"(https?)://([^/?#]*)([/?][^#]*)?", re.ASCII | re.IGNORECASE)
_TESTS = " (for tests and intranets the server has the setting webhooks_allow_private)"
_PRINTABLE = re.compile(r"[\x21-\x7e]+", re.ASCII)
_IN_BRACKETS = re.compile(r"\[([0-9A-Fa-f:.]{2,45})\](?::([0-9]{1,5}))?", re.ASCII)
_NAMED = re.compile(r"([A-Za-z0-9._-]{1,254})(?::([0-9]{1,5}))?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)  # a last label that makes a host an address
_DECIMALS = re.compile(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}", re.ASCII)


class CallbackRules(NamedTuple):
    """What the settings allow. With `allow_private` also plain http, any port, and private addresses."""

    allow_private: bool = False
    ports: frozenset[int] = frozenset({443})


class Callback(NamedTuple):
    """A URL that was read: what is connected to, and what is asked there."""

    scheme: str
    host: str  # lower case, without brackets and without a final dot
    port: int
    target: str  # path and query
    address: Address | None  # when the host is one

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


def read_callback(url: str, rules: CallbackRules) -> Callback:
    """Return the parts of a callback URL. Raises ValueError with the rule it breaks, as "must ..."."""
    if not 1 <= len(url) <= URL_LENGTH_MAX:
        raise ValueError(f"must be 1 to {URL_LENGTH_MAX} characters long")
    if _PRINTABLE.fullmatch(url) is None or "\\" in url:
        raise ValueError(
            "must be printable ASCII without spaces and backslashes (names as xn--, paths as %XX)"
        )
    if "#" in url:
        raise ValueError("must have no fragment")
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ValueError("must begin with https:// and a host")
    scheme, authority, target = parts[1].lower(), parts[2], parts[3] or "/"
    if "@" in authority:
        raise ValueError("must hold no user name or password")
    if scheme != "https" and not rules.allow_private:
        raise ValueError(f"must begin with https://{_TESTS}")
    host, port_text, address = _host(authority)
    port = _port(port_text, scheme)
    if not rules.allow_private and port not in rules.ports:
        told = ", ".join(str(each) for each in sorted(rules.ports))
        raise ValueError(f"must use port {told}")
    problem = _name_problem(host, rules) if address is None else address_problem(address, rules)
    if problem is not None:
        raise ValueError(f"must lead to a public address: {problem}{'' if rules.allow_private else _TESTS}")
    return Callback(scheme, host, port, target if target.startswith("/") else f"/{target}", address)


def _host(authority: str) -> tuple[str, str | None, Address | None]:
    found = _IN_BRACKETS.fullmatch(authority)
    if found is not None:
        try:
            return found[1].lower(), found[2], IPv6Address(found[1])
        except ValueError:
            raise ValueError("must have a host that is a name or an address") from None
    found = _NAMED.fullmatch(authority)
    if found is None:
        raise ValueError("must have a host that is a name or an address, and at most a port behind it")
    host = found[1].lower()
    name = host.removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]) is not None:
        # 2130706433, 0x7f.1, 017700000001, 127.1: every program reads these in its own way.
        if _DECIMALS.fullmatch(host) is None:
            raise ValueError("must spell an IPv4 address as four decimal numbers")
        try:
            return host, found[2], IPv4Address(host)
        except ValueError:
            raise ValueError("must spell an IPv4 address as four decimal numbers") from None
    if len(name) > 253 or any(_LABEL.fullmatch(label) is None for label in labels):
        raise ValueError("must have a host that is a name or an address")
    return name, found[2], None


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return 443 if scheme == "https" else 80
    port = int(text)
    if not 1 <= port <= 65_535 or text != str(port):
        raise ValueError("must have a port from 1 to 65535")
    return port


def _name_problem(name: str, rules: CallbackRules) -> str | None:
    if rules.allow_private:
        return None
    if name == "localhost" or name.endswith(".localhost"):
        return "localhost is this machine"
    return None if "." in name else f"{name} is a name of the local network"


# Where machines of a cloud hand out keys: refused even where private addresses are allowed.
_METADATA = frozenset(
    {IPv4Address("100.100.100.200"), IPv4Address("192.0.0.192"), IPv6Address("fd00:ec2::254")}
)
_PRIVATE_4 = {
    "loopback": (IPv4Network("127.0.0.0/8"),),
    "private": (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16")),
    "shared by a carrier": (IPv4Network("100.64.0.0/10"),),
}
_NEVER_4 = {
    "unspecified": (IPv4Network("0.0.0.0/8"),),
    "link-local": (IPv4Network("169.254.0.0/16"),),
    "multicast": (IPv4Network("224.0.0.0/4"),),
    "reserved": tuple(
        IPv4Network(each)
        for each in ("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
                     "203.0.113.0/24", "240.0.0.0/4")
    ),
}  # fmt: skip
_PRIVATE_6 = {"loopback": (IPv6Network("::1/128"),), "private": (IPv6Network("fc00::/7"),)}
_GLOBAL_6 = IPv6Network("2000::/3")  # everything beside it is local, mapped, translated or not given out
_NEVER_6 = {
    "a tunnel": (IPv6Network("2001::/32"), IPv6Network("2002::/16")),  # Teredo and 6to4 hold an IPv4 address
    "reserved": (IPv6Network("2001::/23"), IPv6Network("2001:db8::/32"), IPv6Network("3fff::/20")),
}


def address_problem(address: Address, rules: CallbackRules) -> str | None:
    """Return why nothing may be sent to an address, None when it may."""
    if address in _METADATA:
        return f"{address} gives out the keys of a cloud machine"
    if isinstance(address, IPv4Address):
        return _problem_4(address, rules)
    if address.scope_id is not None:
        return f"{address} is bound to an interface"
    mapped = address.ipv4_mapped
    if mapped is not None and rules.allow_private:
        return address_problem(mapped, rules)
    if address in _GLOBAL_6:
        word = _word(address, _NEVER_6)
        return _not_global(address, word)
    if rules.allow_private and _word(address, _PRIVATE_6) is not None:
        return None
    return f"{address} is {_word(address, _PRIVATE_6) or 'no global address'}"


def _problem_4(address: IPv4Address, rules: CallbackRules) -> str | None:
    word = _word(address, _PRIVATE_4)
    if word is not None:
        return None if rules.allow_private else f"{address} is {word}"
    return _not_global(address, _word(address, _NEVER_4))


def _not_global(address: Address, word: str | None) -> str | None:
    # The second opinion is the standard library's, whose tables differ between versions.
    if word is None and (address.is_global and not address.is_multicast):
        return None
    return f"{address} is {word or 'no global address'}"


def _word(address: Address, table: Mapping[str, tuple[IPv4Network | IPv6Network, ...]]) -> str | None:
    return next((word for word, nets in table.items() if any(address in net for net in nets)), None)
