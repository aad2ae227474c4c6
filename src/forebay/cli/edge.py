"""run: the edge of the process: streams, exit codes, and one clear line in place of every traceback."""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from forebay.cli.show import Stop, complain
from forebay.errors import AppError, ConfigError, ForebayError, UnauthorizedError, UnreachableError
from forebay.values import of_system

GOOD, NO, USAGE, AWAY, INTERRUPTED = 0, 1, 2, 3, 130
_CANNOT_START = ("store_locked", "store_version", "store_broken")


def run(argv: Sequence[str]) -> int:
    """Run one command. Returns the exit code: 0 good, 1 the answer is "no" or output was lost, 2 usage,
    3 cannot reach or start, 130 interrupted."""
    _steady_streams()
    code, problem = GOOD, None
    try:
        code = _invoke(list(argv))
    except Stop as stop:
        code = stop.code
        problem = {"code": "stopped", "message": str(stop)} if str(stop) else None
    except ForebayError as error:
        code, problem = _code_of(error), {"code": error.code, "message": _told(error)}
    except KeyboardInterrupt:
        code, problem = INTERRUPTED, {"code": "interrupted", "message": "interrupted"}
    except UnicodeEncodeError as error:  # only an argument can hold bytes that are no text
        wrong = error.object[max(0, error.start - 20) : error.end + 20]
        code, problem = USAGE, {"code": "not_utf8", "message": f"not UTF-8: {wrong}"}
    except BrokenPipeError:
        code = NO  # whoever read our output has gone: nothing to say and nobody to say it to
        _silence()
    except OSError as error:
        code, problem = NO, {"code": "os", "message": of_system(error)}
    except ModuleNotFoundError as error:  # a dependency that somebody removed, or that has no wheel here
        code, problem = AWAY, {"code": "unsupported", "message": _lacking(error)}
    except Exception as error:  # a bug of ours: still one line
        message = f"internal error: {type(error).__name__}: {error} (please report it)"
        code, problem = NO, {"code": "internal", "message": message}
        if os.environ.get("PYTHONDEVMODE"):
            raise
    if problem is not None:
        complain(problem["message"])
        if "--json" in argv:
            with contextlib.suppress(OSError):
                print(json.dumps({"error": problem}))
    return _flushed(code)


def _invoke(argv: list[str]) -> int:
    from forebay.cli.app import app

    # Old releases of typer use click itself, newer ones a copy of their own: ask for its classes by kin.
    click_error: Any = typer.BadParameter.__mro__[2]
    try:
        if not argv:
            app(["--help"], prog_name="forebay", standalone_mode=False)
            return USAGE
        code = app(argv, prog_name="forebay", standalone_mode=False)
    except click_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            return USAGE
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context is not None else ""
        raise Stop(f"{error.format_message()}{where}", USAGE) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.Exit as stop:
        return stop.exit_code
    return code if isinstance(code, int) else GOOD


def _code_of(error: ForebayError) -> int:
    if isinstance(error, UnreachableError) or error.code in _CANNOT_START:
        return AWAY
    return USAGE if isinstance(error, ConfigError | AppError) else NO


def _told(error: ForebayError) -> str:
    text = str(error)
    more = [(path, rule) for path, rule in error.errors[:5] if rule not in text]  # often the text is the one
    if more:
        text += " (" + "; ".join(f"{path}: {rule}" if path else rule for path, rule in more) + ")"
    if error.code == UnauthorizedError.code:
        text += " (--api-key, or FOREBAY_API_KEY)"
    if error.limit is not None and str(error.limit) not in text:
        text += f" (limit {error.limit})"
    if error.retry_after_s is not None:
        text += f" (come back in {error.retry_after_s:g} s)"
    return text


def _lacking(error: ModuleNotFoundError) -> str:
    again = "pip install --force-reinstall forebay"
    return f"{error.name} is not installed, which Forebay needs: install it again ({again})"


def _steady_streams() -> None:
    """Closed descriptors are opened on the null device, so that no file of ours becomes standard output;
    text that the locale cannot show is escaped."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Reading finds the end; writing fails, so that lost output is noticed.
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False, encoding="utf-8")  # noqa: SIM115 - lives as long as we do
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _silence() -> None:
    """Let the interpreter's last flush go nowhere instead of failing again."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _flushed(code: int) -> int:
    """Flush standard output; lost output is never a success."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
        return code or NO
    except OSError as error:
        _silence()
        complain(f"cannot write standard output: {error.strerror}")
        return code or NO
    return code
