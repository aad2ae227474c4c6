"""Protections switched off one at a time, to see that the tests of them fail.

`E2E_SABOTAGE=name pytest tests/e2e/...` starts every server with that protection off; a test may also ask
for one itself. Run as a program it is `forebay` with the protection off.
"""

import os
import sys


def no_renewal():
    """Leases are never renewed."""
    from forebay.core.renewing import Renewals

    Renewals.due = lambda self, hand, now: None


def no_doorbell():
    """Nobody is told that there is work."""
    from forebay.node.node import Node

    Node._knock = lambda self, task: None


def no_backstop():
    """Nobody is told, and nobody looks."""
    from forebay.core import dispatcher

    no_doorbell()
    dispatcher.POLL_S = 1e6


def charged_hand_back():
    """What is handed back costs an attempt."""
    from forebay.core import settle

    settle.release = lambda lease, *, policy, now: settle.lose(lease, error=None, now=now)


def forgetful_outbox():
    """What callbacks are owed does not outlive the process."""
    from forebay.brokers.sqlite.deliveries import Deliveries

    Deliveries.load = lambda self, now: self._connection.execute("DELETE FROM deliveries")


def no_drain():
    """A signal ends the process at once."""
    from forebay import wiring

    wiring.Signals.received = lambda self: os._exit(0)


def deaf_door():
    """The door is not told of the drain."""
    from forebay.server.front import Lifecycle

    Lifecycle.begin_drain = lambda self: None


def closed_backlog():
    """The listener closes on those who wait to be accepted."""
    from forebay.server import serve

    serve._shut = lambda listeners: None
    serve.LAST_ACCEPTS_S = 0.0


def endless_grace():
    """What still runs at the end of the grace is waited for."""
    from forebay.core.dispatcher import Dispatcher

    Dispatcher.abandon = lambda self: None


def orphans():
    """Children do not die with their parent, nor when their connection ends."""
    from forebay.node import replica, spawn

    before = spawn.child_command

    def command(entry, app, options):
        sly = "import forebay.child.guard as g; g.die_with = lambda *a: 0; g.end_group = __import__('threading').Event().wait;"
        run = "import runpy; runpy.run_module('forebay.child', run_name='__main__', alter_sys=True)"
        line = before(entry, app, options)
        return [line[0], "-c", f"import sys; {sly} {run}", *line[line.index("forebay.child") + 1 :]]

    replica.child_command = command


def no_recovery():
    """At the start nothing that ran before is looked for."""
    from forebay.brokers.sqlite import SqliteBroker

    SqliteBroker.sweep = _sweep_without_overdue(SqliteBroker.sweep)


def no_timeout():
    """Handlers may take for ever."""
    from forebay.core import stopping

    stopping.timeout_at = lambda hand, replica: None


def no_kill_of_the_cancelled():
    """A handler that does not hear of its cancel is left alone."""
    from forebay.core import dispatcher

    dispatcher.CANCEL_GRACE_S = 1e6
    dispatcher.Dispatcher.__init__.__kwdefaults__["cancel_grace_s"] = 1e6


def cancel_unheard():
    """A cancel of a running job tells nobody."""
    from forebay.node.node import Node

    Node._changed = lambda self, changes: None


def deaths_are_free():
    """A death charges nobody."""
    from forebay.core import settle

    def die(lease, *, error, policy, now, jitter):
        return settle.suspect(lease, error=error, policy=policy, now=now)

    settle.die = die


def batches_die_together():
    """Each member of a crashed batch is charged."""
    from forebay.core import settle

    def suspect(lease, *, error, policy, now):
        return settle.die(lease, error=error, policy=policy, now=now, jitter=0.5)

    settle.suspect = suspect


def no_jitter():
    """Every retry waits the same time."""
    from forebay.core.retry import RetryPolicy

    before = RetryPolicy.delay_s
    RetryPolicy.delay_s = lambda self, *, attempt, jitter, after_s=None: before(
        self, attempt=attempt, jitter=0.5, after_s=after_s
    )


def no_floor():
    """A retry may come at once."""
    from forebay.core import retry

    retry.DELAY_FLOOR_S = 0.0


def no_janitor():
    """Nobody expires, promotes or hands on."""
    from forebay.node.janitor import Janitor

    Janitor.start = lambda self: None


def always_ready():
    """Readiness does not look."""
    from forebay.node.node import Node

    Node.unready_reason = lambda self: None


def talkative():
    """Every failure is a log line."""
    from forebay.observe import logs

    logs.REPEAT_S = 0.0


def quick_restarts():
    """Not a protection of jobs: children that die again and again are replaced soon, for more kills a minute."""
    from forebay.core.restart import RestartPolicy
    from forebay.node import supervisor

    supervisor.RestartPolicy = lambda: RestartPolicy(cap_s=0.2)


def _sweep_without_overdue(sweep):
    async def swept(self, *, limit, now):
        found = await sweep(self, limit=limit, now=now)
        return found._replace(overdue=[]) if hasattr(found, "_replace") else found

    return swept


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    from forebay.cli import main

    main()
