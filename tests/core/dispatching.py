"""Rigs that several tests of the Dispatcher begin with."""


def tags_of(runs):
    return [[tag for tag, _ in run.items] for run in runs]


BATCH = dict(batch_max=4, batch_wait_s=0.02)
