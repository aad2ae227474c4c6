"""Letters, AsyncLetters: what both clients can do about dead letters."""

from forebay.client import arguments, plans, wire
from forebay.client.arguments import LIST_MAX
from forebay.client.drive import Runs, RunsLater
from forebay.client.wire import View

Views = list[View]


class Letters:
    """The part of a Client that is about dead letters."""

    def dead_letters(self: Runs, *, task: str | None = None, limit: int = LIST_MAX) -> Views:
        """Return up to `limit` dead letters, newest first."""
        return self.run(plans.rows("/v1/dead-letters", {"task": task}, limit, self.terms))

    def dead_letter(self: Runs, job_id: str) -> View:
        """Return one dead letter: cause, attempts, worker."""
        return self.run(plans.ask(wire.dead_letter_call("GET", job_id), self.terms))

    def edit(self: Runs, job_id: str, payload: object) -> View:
        """Have the redrive of a dead letter take another payload. Returns the dead letter."""
        return self.run(plans.ask(arguments.edit(job_id, payload), self.terms))

    def redrive(self: Runs, job_id: str, *, force: bool = False) -> View:
        """Make a new job of a dead letter; asked again, the server names the one made the first time.

        `force`: also when its input is in quarantine (needs the scope admin). Raises QuarantinedError else.
        """
        return self.run(plans.ask(wire.redrive_call(job_id, force=force), self.terms))

    def quarantine(self: Runs, *, task: str | None = None, limit: int = LIST_MAX) -> Views:
        """Return up to `limit` inputs in quarantine, in the order of their fingerprints."""
        return self.run(plans.rows("/v1/quarantine", {"task": task}, limit, self.terms))

    def release(self: Runs, fingerprint: str) -> View:
        """Take an input out of quarantine; returns what it was. Needs the scope admin."""
        return self.run(plans.ask(wire.release_call(fingerprint), self.terms))

    def purge(self: Runs, job_id: str) -> View:
        """Remove a dead letter for good."""
        return self.run(plans.ask(wire.dead_letter_call("DELETE", job_id), self.terms))


class AsyncLetters:
    """The part of an AsyncClient that is about dead letters."""

    async def dead_letters(self: RunsLater, *, task: str | None = None, limit: int = LIST_MAX) -> Views:
        """Return up to `limit` dead letters, newest first."""
        return await self.run(plans.rows("/v1/dead-letters", {"task": task}, limit, self.terms))

    async def dead_letter(self: RunsLater, job_id: str) -> View:
        """Return one dead letter: cause, attempts, worker."""
        return await self.run(plans.ask(wire.dead_letter_call("GET", job_id), self.terms))

    async def edit(self: RunsLater, job_id: str, payload: object) -> View:
        """Have the redrive of a dead letter take another payload. Returns the dead letter."""
        return await self.run(plans.ask(arguments.edit(job_id, payload), self.terms))

    async def redrive(self: RunsLater, job_id: str, *, force: bool = False) -> View:
        """Make a new job of a dead letter; asked again, the server names the one made the first time.

        `force`: also when its input is in quarantine (needs the scope admin). Raises QuarantinedError else.
        """
        return await self.run(plans.ask(wire.redrive_call(job_id, force=force), self.terms))

    async def quarantine(self: RunsLater, *, task: str | None = None, limit: int = LIST_MAX) -> Views:
        """Return up to `limit` inputs in quarantine, in the order of their fingerprints."""
        return await self.run(plans.rows("/v1/quarantine", {"task": task}, limit, self.terms))

    async def release(self: RunsLater, fingerprint: str) -> View:
        """Take an input out of quarantine; returns what it was. Needs the scope admin."""
        return await self.run(plans.ask(wire.release_call(fingerprint), self.terms))

    async def purge(self: RunsLater, job_id: str) -> View:
        """Remove a dead letter for good."""
        return await self.run(plans.ask(wire.dead_letter_call("DELETE", job_id), self.terms))
