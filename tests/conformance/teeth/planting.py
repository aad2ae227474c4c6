"""How a fault is planted in a Ledger, and the list of those that are."""

FAULTS = {}
BLUNT = {}  # faults that the drill cannot meet, and why


def fault(plant, blunt=None):
    FAULTS[plant.__name__] = plant
    if blunt:
        BLUNT[plant.__name__] = blunt
    return plant


def unmet(why):
    return lambda plant: fault(plant, why)


def wrap(thing, name):
    """Replace a method of one object by a function that gets the original first."""

    def replace(function):
        original = getattr(thing, name)
        if hasattr(thing, "__dict__"):
            setattr(thing, name, lambda *args, **options: function(original, *args, **options))
        else:
            method = lambda self, *args, **options: function(original, *args, **options)
            thing.__class__ = type("Planted", (type(thing),), {"__slots__": (), name: method})
        return function

    return replace


def settling(book, change):
    """Let `change` alter every transition before it is stored."""
    wrap(book._shelf, "settle")(lambda store, entry, t: store(entry, change(t)))


def ordering(book, key):
    """Let `key` decide the order instead of the order key."""

    @wrap(book._shelf, "put")
    def _(put, entry):
        put(entry)
        if entry.line is not None:
            entry.line.order.remove(entry.order)
            entry.order = (key(entry), entry.job.id)
            entry.line.order.add(entry.order)


def waiting_longer(book, verb, change):
    """Let one verb see another end of every waiting job."""

    @wrap(book, verb)
    def _(original, *args, now, **options):
        entries = [(entry, entry.waits_until) for entry in book._shelf.jobs.values()]
        for entry, until in entries:
            entry.waits_until = change(until, now)
        answer = original(*args, now=now, **options)
        for entry, until in entries:
            entry.waits_until = until
        return answer
