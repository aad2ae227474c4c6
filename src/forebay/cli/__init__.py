"""The command line. `main` is the entry point; everything heavy is imported by the command that needs it."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command in sys.argv and end the process with its exit code."""
    try:
        from forebay.cli.edge import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # between the start and the command
        code = 130
    # All is closed and flushed. Taking the interpreter apart after that costs up to a second on a busy
    # machine, which a server that is asked to stop does not have.
    os._exit(code)
