"""Run a command line: whatever happens becomes one message and an exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from click import ClickException

from rpdp.cli import unicode_fallback
from rpdp.cli.app import app as rpdp_app
from rpdp.cli.output import INTERRUPTED, report_error
from rpdp.errors import RpdpError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer import Typer

BAD_INPUT = 2

_EXTRAS = {
    "rpdp audit": ("train",),
    "rpdp compare": ("train",),
    "rpdp console": ("ledger", "console"),
    "rpdp consent": ("ledger", "consent"),
    "rpdp deploy": ("train", "ledger", "flower"),
    "rpdp doctor": ("train",),
    "rpdp ledger": ("ledger",),
    "rpdp report": ("train",),
    "rpdp silo": ("train", "ledger"),
    "rpdp statistics": ("train",),
    "rpdp train": ("train",),
    "rpdp tune": ("train",),
}
"""The extras that a command needs. The embedded tasks and real runs need more (demo, ledger), and say so themselves."""


def run(arguments: Sequence[str], app: Typer = rpdp_app) -> int:
    """Run a command line and return its exit code. Nothing that a user can cause ends in a traceback."""
    unicode_fallback.install()
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
    except ModuleNotFoundError as error:
        known = _missing_extra(f"{app.info.name} {_command(arguments)}", error)
        return report_error(str(known), type(known).__name__, known.exit_code, as_json=as_json)
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


def _command(arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if not argument.startswith("-")), "")


def _missing_extra(command: str, error: ModuleNotFoundError) -> RpdpError:
    """The error that names the extra to install; a module that no extra provides is a defect, and stays one."""
    from rpdp.extras import missing_extra

    known = missing_extra(command, error, _EXTRAS.get(command, ()))
    if known is None:
        raise error
    return known


def _usage(error: ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f" See {context.command_path} --help"
    return f"{error.format_message()}{hint}"


def _leave_quietly() -> int:
    """Whoever reads the pipe has left (`rpdp … | head -1`): print no error about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
