"""Entry of a child: `python -m forebay.child describe|run APP --parent PID ...`."""

import sys

from forebay.child import guard


def main(arguments: list[str]) -> None:
    """Run one of the two entries; started by a node only."""
    entry, app, *rest = arguments
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    guard.die_with(int(options["--parent"]))
    guard.ignore_signals()
    if entry == "describe":
        from forebay.child.describe import describe_to_stdout

        describe_to_stdout(app)
    else:
        from forebay.child.worker import serve_on

        fd, mark = int(options["--fd"]), int(options["--mark"])
        guard.keep_from_grandchildren(fd)
        guard.keep_from_grandchildren(mark)
        serve_on(fd, mark)


main(sys.argv[1:])
