"""The same decisions in virtual time: clients, store, nodes and children built from core, and faults.

`World(plan, book).run()` plays one history; a seed gives the plan, the plan gives the history, and the
checker says which invariant broke.
"""
