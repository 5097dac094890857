"""Running a command: every way it can end becomes an exit code, and a message where its reader looks."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from click import ClickException

from rpdp.cli import spelling
from rpdp.cli.app import app as rpdp_app
from rpdp.cli.output import INTERRUPTED, report_error
from rpdp.errors import RpdpError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer import Typer

BAD_INPUT = 2


def run(arguments: Sequence[str], app: Typer = rpdp_app) -> int:
    """Run a command line and return its exit code; never a traceback for what a user can cause."""
    spelling.install()
    try:
        code = _run(app, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return _leave_quietly()
    if code == INTERRUPTED:
        sys.stderr.write("\ninterrupted\n")
    return code


def _run(app: Typer, arguments: Sequence[str]) -> int:
    as_json = "--json" in arguments
    try:
        return int(app(list(arguments), prog_name=app.info.name, standalone_mode=False) or 0)
    except RpdpError as error:
        return report_error(str(error), type(error).__name__, error.exit_code, as_json=as_json)
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help is the message
            return error.exit_code
        return report_error(_usage(error), "UsageError", error.exit_code, as_json=as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return report_error(f"{name}{error.strerror or error}", "OSError", BAD_INPUT, as_json=as_json)


def _usage(error: ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f" See {context.command_path} --help"
    return f"{error.format_message()}{hint}"


def _leave_quietly() -> int:
    """The reader of a pipe has seen enough (`rpdp … | head -1`): let nothing complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
