"""Access: one table says which scope each route wants; what is not in it is served to nobody with keys."""

import math
from collections.abc import Mapping
from hmac import compare_digest
from typing import Final, NamedTuple

from forebay.core.quota import Quota
from forebay.core.tenant import TENANT, TENANT_RULE, Scope
from forebay.errors import (
    ForbiddenError,
    ForebayError,
    InvalidError,
    MethodError,
    NotFoundError,
    UnauthorizedError,
)
from forebay.keys import Key, KeyRing, digest_of
from forebay.server.asking import Heads
from forebay.server.asking import Scope as Asked
from forebay.server.caller import LOCAL, NOBODY, Caller

TENANT_HEADER: Final = b"forebay-tenant"
ADMIN_PLANE: Final = "forebay.admin"  # in the scope of a request to the admin listener
_TENANTS_CACHED_MAX = 1_024


class Rule(NamedTuple):
    """What a route asks of its caller. `scope` None: nothing. `plane`: answered on the admin listener only,
    where there is one."""

    scope: Scope | None
    plane: bool = False


OPEN: Final = Rule(None)
READ, SUBMIT, CANCEL = Rule(Scope.READ), Rule(Scope.SUBMIT), Rule(Scope.CANCEL)
STEER, WATCH, AGAIN, REMOVE = (
    Rule(Scope.ADMIN, plane=True),  # taps
    Rule(Scope.ADMIN, plane=True),  # what the machine does, over all tenants
    Rule(Scope.SUBMIT, plane=True),  # what was refused for good, once more
    Rule(Scope.CANCEL, plane=True),
)

# A segment in braces stands for any one segment. A test holds the table to the routes that exist.
ACCESS: Final[Mapping[tuple[str, str], Rule]] = {
    ("GET", "/"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/metrics"): WATCH,
    ("GET", "/v1/workers"): WATCH,
    ("GET", "/v1/alerts"): WATCH,
    ("GET", "/v1/nodes"): WATCH,
    ("POST", "/v1/jobs"): SUBMIT,
    ("GET", "/v1/jobs"): READ,
    ("GET", "/v1/jobs/{}"): READ,
    ("PATCH", "/v1/jobs/{}"): SUBMIT,
    ("DELETE", "/v1/jobs/{}"): CANCEL,
    ("POST", "/v1/jobs/cancel"): CANCEL,
    ("GET", "/v1/jobs/{}/result"): READ,
    ("POST", "/v1/jobs/{}/result/link"): READ,
    ("GET", "/v1/jobs/{}/events"): READ,
    ("GET", "/v1/jobs/{}/deliveries"): READ,
    ("POST", "/v1/jobs/{}/deliveries/replay"): SUBMIT,
    ("GET", "/v1/tasks"): READ,
    ("GET", "/v1/tasks/{}"): READ,
    ("GET", "/v1/queues"): READ,
    ("GET", "/v1/queues/{}"): READ,
    ("POST", "/v1/queues/{}/announce"): SUBMIT,
    ("GET", "/v1/queues/{}/headroom"): READ,
    ("POST", "/v1/queues/{}/pause"): STEER,
    ("POST", "/v1/queues/{}/resume"): STEER,
    ("POST", "/v1/queues/{}/drain"): STEER,
    ("GET", "/v1/budgets"): READ,
    ("GET", "/v1/crons"): READ,
    ("POST", "/v1/crons/{}/pause"): STEER,
    ("POST", "/v1/crons/{}/resume"): STEER,
    ("GET", "/v1/dead-letters"): READ,
    ("GET", "/v1/dead-letters/{}"): READ,
    ("POST", "/v1/dead-letters/redrive"): AGAIN,
    ("POST", "/v1/dead-letters/{}/redrive"): AGAIN,
    ("PATCH", "/v1/dead-letters/{}"): AGAIN,
    ("DELETE", "/v1/dead-letters/{}"): REMOVE,
    ("GET", "/v1/quarantine"): READ,
    ("DELETE", "/v1/quarantine/{}"): STEER,
    ("POST", "/v1/predict/{}"): SUBMIT,
    ("PUT", "/v1/blobs"): SUBMIT,
    ("GET", "/v1/blobs/{}"): READ,
    ("POST", "/v1/blobs/{}/link"): READ,
    ("DELETE", "/v1/blobs/{}"): CANCEL,
    ("GET", "/v1/streams"): WATCH,
    ("PUT", "/v1/streams/{}"): SUBMIT,
    ("POST", "/v1/streams/{}"): SUBMIT,
    ("POST", "/v1/erase"): STEER,
}


class _Node:
    """One place in the tree of paths."""

    __slots__ = ("below", "rules")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.rules: dict[str, Rule] = {}


def _tree() -> _Node:
    root = _Node()
    for (method, path), rule in ACCESS.items():
        node = root
        for part in path.split("/"):
            node = node.below.setdefault(part, _Node())
        node.rules[method] = rule
    return root


_ROOT: Final = _tree()


def rules_of(path: str) -> Mapping[str, Rule]:
    """Return the rules of an address by method, empty when it is none of ours."""
    node = _ROOT
    for part in path.split("/"):
        below = node.below.get(part) or node.below.get("{}")
        if below is None:
            return {}
        node = below
    return node.rules


def challenge(error: ForebayError) -> tuple[bytes, bytes]:
    """Return the WWW-Authenticate field (RFC 6750) of a 401 or 403."""
    text = 'Bearer realm="forebay"'
    if isinstance(error, ForbiddenError):
        missing = error.errors[0][1].partition(" ")[0] if error.errors else ""
        text += f', error="insufficient_scope", scope="{missing}"'
    elif error.errors:
        text += ', error="invalid_token"'
    return (b"www-authenticate", text.encode())


def route_of(path: str) -> str:
    """Return the address for a log: what stands in its places is left out."""
    node, parts = _ROOT, list[str]()
    for part in path.split("/"):
        parts.append(part if part in node.below else "{}")
        below = node.below.get(parts[-1])
        if below is None:
            return "unknown"
        node = below
    return "/".join(parts)


def rate_fields(quota: Quota, *, now: float) -> list[tuple[bytes, bytes]]:
    """Return RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers) for a tenant with rates:
    `q` in a window of `w` seconds; `r` are left, and the bucket is full again in `t` seconds."""
    policies: list[str] = []
    states: list[str] = []
    for name, unit, bucket in (("jobs", "", quota.jobs), ("bytes", ';qu="content-bytes"', quota.bytes)):
        if bucket is not None:
            left = bucket.tokens_at(now)
            window_s = max(1, math.ceil(bucket.burst / bucket.rate_per_s))
            policies.append(f'"{name}";q={bucket.burst:.0f};w={window_s}{unit}')
            full_in_s = math.ceil((bucket.burst - left) / bucket.rate_per_s)
            states.append(f'"{name}";r={math.floor(left + 1e-9)};t={full_in_s}')
    if not policies:
        return []
    return [
        (b"ratelimit-policy", ", ".join(policies).encode()),
        (b"ratelimit", ", ".join(states).encode()),
    ]


class Watchman:
    """Tells who asks, and refuses what is not for them, before anything of the body is read."""

    def __init__(self, ring: KeyRing | None, *, apart: bool = False) -> None:
        self.apart = apart  # there is an admin listener
        self._callers: dict[bytes, tuple[Key, Caller]] | None = None
        self._acting: dict[tuple[Caller, bytes], Caller] = {}
        self.ring = ring
        self.quotas: Mapping[str, Quota] = {}  # of the tenants with limits; rates go on over a new ring
        self.keyed = ring is not None  # keys are configured, be there none among them
        self.watches = self.keyed or apart
        if ring is not None:
            self.use(ring)

    def use(self, ring: KeyRing) -> None:
        """Let these keys in from now on, and no other."""
        self.ring = ring
        self._acting.clear()
        self.quotas = {
            tenant: had if (had := self.quotas.get(tenant)) and had.limits == limits else Quota(limits)
            for tenant, limits in ring.limits.items()
        }
        self._callers = {
            digest: (
                key,
                Caller(key.tenant, None if Scope.ADMIN in key.scopes else key.tenant, key.scopes, digest),
            )
            for digest, key in ring.keys.items()
        }

    def stands(self, who: Caller, *, now: float) -> bool:
        """Say whether whoever was let in before would be let in still, to see and do as much."""
        if self._callers is None:
            return True
        found = self._callers.get(who.key)
        if found is None or (found[0].expires_at is not None and found[0].expires_at <= now):
            return False
        today = found[1]
        return today.own in {None, who.own} and (Scope.ADMIN in today.scopes or who.scopes <= today.scopes)

    def admit(self, asked: Asked, heads: Heads, *, now: float) -> Caller:
        """Return who asks. Raises UnauthorizedError, ForbiddenError, NotFoundError or MethodError."""
        method = "GET" if asked["method"] == "HEAD" else asked["method"]
        if self._callers is None:
            if self.apart and self._is_elsewhere(asked, method):
                raise NotFoundError("no such address")
            tenant = heads.get(TENANT_HEADER)
            return LOCAL if tenant is None else self._as_tenant(LOCAL, tenant)
        rules = rules_of(asked["path"])
        if self.apart and self._is_elsewhere(asked, method):
            rules = {name: rule for name, rule in rules.items() if not rule.plane}
        rule = rules.get(method)
        if rule is not None and rule.scope is None:
            return NOBODY
        who = self._who(heads.get(b"authorization"), now)
        if rule is None:
            if rules:
                allowed = sorted({*rules, "HEAD"} if "GET" in rules else rules)
                raise MethodError(f"allowed: {', '.join(allowed)}")
            raise NotFoundError("no such address")
        assert rule.scope is not None
        if not who.may(rule.scope):
            raise ForbiddenError(
                f"the key lacks the scope {rule.scope.value}",
                errors=(("scope", f"{rule.scope.value} is missing"),),
            )
        tenant = heads.get(TENANT_HEADER)
        if tenant is not None and Scope.ADMIN in who.scopes:
            return self._as_tenant(who, tenant)
        return who

    def _is_elsewhere(self, asked: Asked, method: str) -> bool:
        """Say whether this is answered on the admin listener alone, and was not asked there."""
        rule = rules_of(asked["path"]).get(method)
        return rule is not None and rule.plane and not asked.get(ADMIN_PLANE)

    def _who(self, header: bytes | None, now: float) -> Caller:
        if header is None:
            raise UnauthorizedError("an API key is required: Authorization: Bearer KEY")
        assert self._callers is not None
        kind, _, text = header.partition(b" ")
        digest = digest_of(text.strip())
        found = self._callers.get(digest)
        if found is None or kind.lower() != b"bearer" or not compare_digest(found[0].digest, digest):
            raise UnauthorizedError("the API key is not valid", errors=(("authorization", "unknown key"),))
        expires_at = found[0].expires_at
        if expires_at is not None and expires_at <= now:
            raise UnauthorizedError("the API key is not valid", errors=(("authorization", "unknown key"),))
        return found[1]

    def _as_tenant(self, who: Caller, header: bytes) -> Caller:
        acting = self._acting.get((who, header))
        if acting is None:
            tenant = header.decode("latin-1")
            if TENANT.fullmatch(tenant) is None:
                rule = f"must be {TENANT_RULE}"
                raise InvalidError(f"Forebay-Tenant {rule}", errors=(("Forebay-Tenant", rule),))
            acting = Caller(tenant, tenant, who.scopes, who.key)
            if len(self._acting) >= _TENANTS_CACHED_MAX:
                self._acting.clear()
            self._acting[who, header] = acting
        return acting
