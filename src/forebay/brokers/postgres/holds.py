"""Holds: renewals of leases, with progress and checkpoints."""

from collections.abc import Sequence
from typing import Final

from forebay.brokers.postgres.intake import add_links
from forebay.brokers.postgres.schema import RUNNING, STATE_SQL
from forebay.brokers.postgres.store import Tx
from forebay.brokers.shared.states import UUID
from forebay.core.blobs import named
from forebay.core.job import Claim, Hold

_RENEW: Final = (
    "UPDATE jobs j SET lease_until = %s, progress = coalesce(u.progress, j.progress),"
    " checkpoint = coalesce(u.checkpoint, j.checkpoint), marked = j.marked OR u.marked"
    " FROM unnest(%s::uuid[], %s::int8[], %s::bytea[], %s::bytea[], %s::bool[])"
    " WITH ORDINALITY AS u(id, fence, progress, checkpoint, marked, ord)"
    f" WHERE j.id = u.id AND {STATE_SQL} = {RUNNING} AND j.fence = u.fence AND j.lease_until > %s"
    " RETURNING u.ord::int4, j.cancel_requested, j.marked"
)
_UNLINK: Final = "DELETE FROM links WHERE job_id = ANY(%s::uuid[]) AND place = 'c'"


async def extend(tx: Tx, claims: Sequence[Claim], *, lease_s: float) -> list[Hold]:
    """Renew leases and store progress; answer in order."""
    holds = [Hold.LOST] * len(claims)
    left = [at for at, claim in enumerate(claims) if UUID.fullmatch(claim.job_id) is not None]
    while left:  # of several for one job each has its turn
        turn: dict[tuple[str, int], int] = {}
        later: list[int] = []
        for at in left:
            key = (claims[at].job_id, claims[at].fence)
            if key in turn:
                later.append(at)
            else:
                turn[key] = at
        await _extend_turn(tx, claims, list(turn.values()), holds, lease_s)
        left = later
    return holds


async def _extend_turn(
    tx: Tx, claims: Sequence[Claim], turn: list[int], holds: list[Hold], lease_s: float
) -> None:
    ours = [claims[at] for at in turn]
    marks = [bool(named(claim.checkpoint)) for claim in ours]
    arrays = [
        [claim.job_id for claim in ours],
        [claim.fence for claim in ours],
        [claim.progress for claim in ours],
        [claim.checkpoint for claim in ours],
        marks,
    ]
    unlinked: list[str] = []
    links: list[tuple[str, str, str]] = []
    at: int
    for at, cancelled, marked in await tx.rows(_RENEW, [tx.now + lease_s, *arrays, tx.now]):
        claim = ours[at - 1]
        holds[turn[at - 1]] = Hold.CANCEL if cancelled else Hold.HELD
        if marked and claim.checkpoint is not None:
            unlinked.append(claim.job_id)
            links += [(blob, claim.job_id, "c") for blob in named(claim.checkpoint)]
    if unlinked:
        await tx.run(_UNLINK, [unlinked])
        await add_links(tx, links)
