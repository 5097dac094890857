"""`rpdp console`: pages for the steward of a silo, on this machine alone."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rpdp.cli import options
from rpdp.cli.output import print_json, say_line
from rpdp.cli.signals import stop_on_signal
from rpdp.errors import InputError
from rpdp.log_format import begin_logging


def console(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The silo file (TOML).")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="A port on 127.0.0.1; 0 for a free one.")] = 0,
    socket: Annotated[
        Path | None, typer.Option("--socket", help="Instead of a port: a Unix socket, which only this user may open.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--steward-key", help="The steward's private key: the console then also acts. Else it only shows."
        ),
    ] = None,
    passphrase: Annotated[
        str | None, typer.Option("--passphrase", envvar="RPDP_STEWARD_PASSPHRASE", help="Of the steward's key.")
    ] = None,
    minutes: Annotated[
        float, typer.Option("--idle", min=0.1, max=600.0, help="Minutes without a request after which a session ends.")
    ] = 15.0,
    browser: Annotated[bool, typer.Option(help="Open a browser, if there is a screen.")] = True,
    log_format: options.LogFormatOption = "text",
    as_json: options.Json = False,
) -> None:
    """Show a silo's ledger as pages for its steward, in a browser on this machine, beside its running agent.

    The address that it prints signs in once. It ends with SIGTERM or Ctrl-C. With --json each address is a JSON
    object: the first one, and a new one whenever a session has ended.

    Example: `rpdp console silo.toml`
    """
    from rpdp.console import ConsoleServer, ConsoleSilo
    from rpdp.deployment.files.silo_file import SiloFile
    from rpdp.ledger import StewardKey

    if socket is not None and port:
        raise InputError("--port and --socket are two ways to be reached: give one of them")
    begin_logging(options.log_format_of(log_format))
    spec = SiloFile.read(file)
    silo = ConsoleSilo(spec, None if key is None else StewardKey.read(key, passphrase))

    def announce(address: str) -> None:
        if as_json:
            print_json({"silo": spec.silo.name, "address": address, "actions": silo.may_act})
        else:
            say_line(f"the console of silo {spec.silo.name}: {address}")
            say_line("It signs in once; keep it to yourself. Ctrl-C ends the console.")
        sys.stdout.flush()

    try:
        server = ConsoleServer(silo, announce, port=port, path=socket, idle=60.0 * minutes)
    except BaseException:
        silo.close()
        raise
    stop_on_signal(server.stop)
    if browser and socket is None and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        # Without the token, which other users could read in the list of processes.
        webbrowser.open(server.address)
    server.serve()
