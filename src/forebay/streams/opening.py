"""create: the memory and the pipes of a new queue; a place that is not the best is announced."""

import logging
import os

from forebay.clock import SystemClock
from forebay.core.slots import UNCOUNTED
from forebay.errors import UnsupportedError
from forebay.streams.channel import Pipe, Pipes
from forebay.streams.slab import ANCHOR, BELL, CREATOR, Form, Slab

_log = logging.getLogger("forebay.streams")


def create(form: Form) -> tuple[Slab, Pipes]:
    """Return a new queue's memory, all slots free, and its pipes.

    Raises NoMemoryError when no place has the memory, UnsupportedError when the kernel gives no such pipes.
    """
    made: list[Pipe] = []
    try:
        # A free pipe may waste a little where entries go in by groups, so it is twice as wide.
        widths = [*[form.slots] * form.priorities, 2 * form.slots, 2 * form.slots, 1, 1, 2 * form.slots]
        made.extend(Pipe.create(entries) for entries in widths)
        if max(pipe.width() for pipe in made) > made[-1].width():
            raise UnsupportedError(
                "this user gets pipes of unequal width, too small a one to look into the others"
            )
        slab = Slab.create(form)
    except BaseException:
        for pipe in made:
            pipe.close()
        raise
    *work, hot, cold, room, end, scratch = made
    if slab.place.kind != "memfd":
        _log.warning("frames are in %s: memfd is not to be had here (%s)", slab.place.kind, slab.place.why)
    slab.times[ANCHOR] = SystemClock().anchor
    slab.words[CREATOR] = os.getpid()
    slab.words[BELL] = UNCOUNTED  # no frame's number
    for first in range(0, form.slots, 512):
        slots = range(first, min(first + 512, form.slots))
        cold.write(b"".join(slot.to_bytes(8, "little") for slot in slots))
    return slab, Pipes(tuple(work), hot, cold, room, end, scratch)
