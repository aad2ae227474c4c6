"""settle_memory: how the interpreter of a process that serves is set."""

import gc
import sys

SWITCH_S = 0.0002  # a thread that wants the interpreter gets it this soon
GC_YOUNG_MAX = 20_000  # allocations, less frees, between two looks of the collector


def settle_memory() -> None:
    """Take what start-up made out of the collector's sight, and let it look seldom: jobs hold no cycles,
    and at thousands a second its passes over young objects cost several percent."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG_MAX, 20, 50)
    # The thread that syncs the disk asks a busy loop for the interpreter after every sync.
    sys.setswitchinterval(SWITCH_S)
