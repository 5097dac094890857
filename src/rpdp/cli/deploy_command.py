"""`rpdp deploy`: certificates, keys and files of a federation over Flower; a trial on this machine; runs."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.deploy_runs_command import give_up, metrics, pause, runs, study
from rpdp.cli.output import print_json, say, say_line
from rpdp.cli.signals import stop_on_signal
from rpdp.errors import InputError, PrivacyRefusal, RpdpError

if TYPE_CHECKING:
    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.flower.control import Value

_NOT_ADMITTED = "was not admitted"
"""Part of the server's message when a silo has refused the plan."""

app = typer.Typer(no_args_is_help=True)
app.command()(study)
app.command()(runs)
app.command()(pause)
app.command("give-up")(give_up)
app.command()(metrics)

Directory = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The federation's directory, made by `rpdp deploy init`.")
]
RunId = Annotated[str, typer.Option("--run-id", help="The name of the rpdp run; the same name resumes it.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the app, such as deadline=60. Repeatable.")
]
Patience = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the end of the run.")]


@app.callback()
def _root() -> None:
    """Set up and run a federation over Flower, with TLS and registered silos.

    Example: `rpdp deploy init study.toml --silos north,south --out federation`
    """


@app.command()
def init(
    file: options.StudyFileArgument,
    silos: Annotated[str, typer.Option("--silos", help="Names of the silos, separated by commas.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new directory.")],
    host: Annotated[str, typer.Option("--host", help="Where silos reach the server: a name or an address.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Its port, for nodes with a certificate.")] = (
        8443
    ),
    stock_port: Annotated[
        int | None,
        typer.Option("--stock-port", min=1, max=65535, help="A port for Flower's own SuperNodes, which have none."),
    ] = None,
    superlink_port: Annotated[
        int | None,
        typer.Option(
            "--superlink-port", min=1, max=65535, help="The server's port on its own loopback. Default: --port + 1."
        ),
    ] = None,
    trial: Annotated[
        bool, typer.Option("--trial", help="Also draw budgets and make ledgers, to try it on this machine.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Make certificates, silo keys, the Flower app and a silo file for every silo.

    FILE is a study file (TOML). It says what is learnt and how, and contains no budget and no record.

    Example: `rpdp deploy init examples/deployment/study.toml --silos silo-00,silo-01 --out federation --trial`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.trial import provide_trial_budgets
    from rpdp.studies.study_file import StudyFile

    spec = StudyFile.read(file)
    names = [name.strip() for name in silos.split(",")]
    layout = Layout.create(out, spec, names, host, port, superlink_port=superlink_port, stock_port=stock_port)
    if trial:
        with layout.undone_on_failure():
            provide_trial_budgets(layout, spec)
    if as_json:
        print_json({"directory": str(out), "silos": list(layout.silos), "server": str(layout.server), "trial": trial})
        return
    say_line(f"{out}/server: for the server; certificate for {host}, port {port}")
    for name in layout.silos:
        say_line(f"{out}/silos/{name}: for silo {name}, with the key of its node")
    say_line(f"{out}/authority: keep it offline")
    if trial:
        say("Budgets are made up and bind nobody.", style="yellow")
        say_line(f"next: rpdp deploy up {out} --run-id trial-1")
    else:
        say("next: each silo completes its silo.toml, makes its ledger, and tries `rpdp silo check silo.toml`")


@app.command()
def up(
    directory: Directory,
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", help="Do this run, then stop everything; without it, stay up until Ctrl-C."),
    ] = None,
    settings: Settings = None,
    timeout: Patience = 3600.0,
    stock_supernode: Annotated[
        bool, typer.Option("--stock-supernode", help="Flower's own SuperNode at the silos, not `rpdp silo node`.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Start the server, and the node and agent of every silo, on this machine, for a trial; stop all at the end.

    Example: `rpdp deploy up federation --run-id trial-1`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.trial import federation
    from rpdp.setting_fields import plain_name

    layout = Layout.read(directory)
    if run_id is not None:
        plain_name("run-id", run_id)
    given = _values(settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: stop whatever was started
    with federation(layout, stock=stock_supernode):
        if not as_json:
            say(f"{len(layout.silos)} silos and their server are up at {layout.address}")
        if run_id is not None:
            _run(layout, run_id, given, timeout, as_json=as_json)
            return
        if as_json:
            print_json({"address": layout.address, "silos": list(layout.silos)})
        else:
            say_line(f"next, in another terminal: rpdp deploy run {directory} --run-id trial-1; Ctrl-C stops all")
        _until_stopped()


@app.command()
def serve(directory: Directory, as_json: options.Json = False) -> None:
    """Run the SuperLink of a server, until SIGTERM: on loopback, for the user who starts it alone.

    It is what a service of the server's user starts. Silos reach it through the proxy, which is another service:
    `nginx -e nginx/error.log -p DIRECTORY/server -c nginx.conf`, as the same user. With --json it first prints
    where silos reach it.

    Example: `rpdp deploy serve /srv/rpdp`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.flower.flower_processes import SuperLink

    layout = Layout.read(directory)
    layout.prepare_server()
    if as_json:
        print_json({"address": layout.address, "silos": list(layout.silos), "server": str(layout.server)})
        sys.stdout.flush()
    SuperLink.of(layout).become()


@app.command()
def register(directory: Directory, as_json: options.Json = False) -> None:
    """Register the keys in `server/keys` at the running SuperLink; remove silos and keys that are no longer there.

    It says of every silo how it stands. It may be called again, and must be after `rotate-key`, `add` and `remove`.

    Example: `rpdp deploy register federation`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.flower.control import Control
    from rpdp.deployment.flower.registration import register_silos

    layout = Layout.read(directory)
    control = Control.of(layout)
    found = register_silos(control, layout)
    if as_json:
        print_json({"silos": found.states, "removed": found.removed, "flwr_home": str(control.home)})
        return
    say(f"{len(layout.silos)} silos at {layout.address}:")
    for name, state in found.states.items():
        say_line(f"{name}: {state}")
    for name in found.removed:
        say_line(f"{name}: removed, with the key that it had")
    say_line(f"flwr itself: FLWR_HOME={control.home} flwr supernode list tls")


@app.command()
def run(
    directory: Directory,
    run_id: RunId,
    settings: Settings = None,
    timeout: Patience = 3600.0,
    as_json: options.Json = False,
) -> None:
    """Submit a run to the running SuperLink and wait for its end; the same id resumes an interrupted run.

    Example: `rpdp deploy run federation --run-id trial-2`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.setting_fields import plain_name

    plain_name("run-id", run_id)
    _run(Layout.read(directory), run_id, _values(settings), timeout, as_json=as_json)


def _run(layout: Layout, run_id: str, settings: dict[str, Value], timeout: float, *, as_json: bool) -> None:
    from rpdp.deployment.files.layout import SUMS
    from rpdp.deployment.flower.control import Control
    from rpdp.federation.run_stops import go_on, stop_word
    from rpdp.studies.run_directory import read_summary

    home = layout.server / "runs" / run_id
    go_on(home)
    server = str(layout.server)  # wherever the directory is now
    submitted = Control.of(layout).submit(layout.app, {"server": server, **settings, "run-id": run_id})
    log = layout.server / "runs" / f"{run_id}.log"
    status = submitted.wait(timeout=timeout, log=log)
    if status.name != "completed" and stop_word(home):
        print_json({"directory": str(home), "stopped": status.details}) if as_json else say(status.details)
        return
    if status.name != "completed":
        kind = PrivacyRefusal if _NOT_ADMITTED in status.details else RpdpError
        raise kind(f"run {run_id} {status.name}: {status.details or 'no reason given'}; its log is {log}")
    found = layout.server / "runs" / run_id
    sums = found / SUMS
    if sums.is_file():
        if as_json:
            print_json({"directory": str(found), "log": str(log), "sums": str(sums)})
        else:
            say(f"run {run_id}: what the silos released is in {sums}")
        return
    summary = read_summary(found)
    if as_json:
        print_json({"directory": str(found), "log": str(log), **summary})
        return
    values = [f"{name} {one['value']:.4f}" for name, one in summary["metrics"].items() if one["value"] is not None]
    measured = f", on public records: {', '.join(values)}" if values else ""
    say(f"run {run_id}: {summary['rounds']} rounds{measured}")
    say_line(f"model, log of rounds and report: {found}")


def _values(settings: list[str] | None) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--set {text!r} must look like deadline=60")
        values[name] = _value(value)
    return values


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _until_stopped() -> None:
    stopped = threading.Event()
    stop_on_signal(stopped.set)
    stopped.wait()
