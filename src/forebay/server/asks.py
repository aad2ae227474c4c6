"""RedriveAsk, EditAsk, AmendAsk, EraseAsk: bodies that are neither a job nor bytes, as they come in."""

import msgspec


class RedriveAsk(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters to redrive, and how fast they may become ready."""

    task: str | None = None
    ids: list[str] | None = None
    cause: str | None = None  # of those of the task, or of all, these only
    since: str | None = None  # that ended at this instant or later (RFC 3339)
    rate: int | float | str | None = None
    limit: int | None = None
    force: bool = False  # also of inputs in quarantine; needs the scope admin


class EditAsk(msgspec.Struct, forbid_unknown_fields=True):
    """The payload that a redrive is to take in place of that of the dead letter."""

    payload: msgspec.Raw


class AmendAsk(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What to change of a job that waits."""

    priority: int | str | None = None
    task: str | None = None


class EraseAsk(msgspec.Struct, forbid_unknown_fields=True):
    """Whose jobs to remove: of a tenant, of all whose metadata have these values, or both at once."""

    tenant: str | None = None
    metadata: dict[str, str] | None = None
    wait_s: float = 10.0  # for running jobs to end
    scrub: bool = True  # write the file anew, so that no byte of them is left in it
