"""Planted faults: lines that come and go."""

from tests.conformance.teeth.planting import fault, wrap


@fault
def a_line_is_as_old_as_its_youngest(book):
    @wrap(book, "depth")
    def _(depth, task, *, now):
        found = depth(task, now=now)
        queue = book._shelf.queues.get(task)
        ages = {} if queue is None else {
            priority: max(book._shelf.jobs[key[1]].ready_at for key in line.order)
            for (priority, _), line in queue.lines.items()
            if len(line.order)
        }  # fmt: skip
        return found._replace(
            lines=tuple(one._replace(oldest_at=ages.get(one.priority, 0.0)) for one in found.lines)
        )


@fault
def a_line_is_that_of_one_tenant(book):
    @wrap(book, "depth")
    def _(depth, task, *, now):
        found = depth(task, now=now)
        queue = book._shelf.queues.get(task)
        counts = {} if queue is None else {priority: len(line) for (priority, _), line in queue.lines.items()}
        return found._replace(lines=tuple(one._replace(queued=counts[one.priority]) for one in found.lines))
