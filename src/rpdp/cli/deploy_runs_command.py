"""`rpdp deploy`: runs that are under way: how far they are, pause, give up; further studies; metrics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.cli import options  # noqa: TC001  # typer reads the annotations
from rpdp.cli.output import print_json, print_table, say, say_line
from rpdp.cli.signals import stop_on_signal
from rpdp.errors import InputError, RpdpError

if TYPE_CHECKING:
    from rpdp.deployment.files.layout import Layout

Directory = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The federation's directory, made by `rpdp deploy init`.")
]
RunId = Annotated[str, typer.Option("--run-id", help="The name of the rpdp run.")]


def study(
    directory: Directory,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study file (TOML).")],
    name: Annotated[str, typer.Option("--name", help="What the study is called at the server.")],
    as_json: options.Json = False,
) -> None:
    """Add another study: the same server, silos, agents and ledgers, another plan and model.

    Each silo adds the plan's fingerprint to `allowed_plans`, and a model of its own installation if it is another one.

    Example: `rpdp deploy study federation second.toml --name second`, then
    `rpdp deploy run federation --run-id second-1 --set study=second`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.files.study_files import add_study
    from rpdp.studies.study_file import StudyFile

    layout = Layout.read(directory)
    plan = add_study(layout.server, name, StudyFile.read(file), layout.silos)
    if as_json:
        print_json({"study": name, "plan": plan.fingerprint, "model": plan.model_fingerprint})
        return
    say_line(f"study {name}: {plan.describe()}; plan {plan.fingerprint}")
    say_line(f'each silo that agrees adds "{plan.fingerprint}" to allowed_plans, its model to [models], and restarts')
    say_line(f"then: rpdp deploy run {directory} --run-id {name}-1 --set study={name}")


def runs(directory: Directory, as_json: options.Json = False) -> None:
    """List the runs of the server: state, rounds, silos that are there.

    Example: `rpdp deploy runs federation`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.run_progress import all_progress
    from rpdp.federation.run_stops import stop_word

    layout = Layout.read(directory)
    found = all_progress(layout.server / "runs")
    asked = {name: stop_word(one.directory) for name, one in found.items()}
    if as_json:
        print_json({"runs": {name: {**one.facts(), "asked": asked[name]} for name, one in found.items()}})
        return
    if not found:
        say("No run has been submitted yet.")
        return
    rows = [
        [name, _state(one.state, asked[name]), f"{one.round} / {one.rounds}", ", ".join(one.silos) or "none"]
        for name, one in found.items()
    ]
    print_table("Runs", ["run", "state", "rounds", "silos in the last round"], rows)


def _state(state: str, asked: str) -> str:
    if not asked:
        return state
    word = "given up" if asked == "give-up" else "paused"
    return f"{state}, to be {word}" if state == "running" else word


def pause(directory: Directory, run_id: RunId, as_json: options.Json = False) -> None:
    """Let a run end after the round in progress; `rpdp deploy run` with the same run id continues it.

    Example: `rpdp deploy pause federation --run-id study-1`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.federation.run_stops import PAUSE, ask_to_stop

    home = _unfinished(Layout.read(directory), run_id)
    ask_to_stop(home, PAUSE)
    if as_json:
        print_json({"run": run_id, "asked": PAUSE})
        return
    say(f"run {run_id}: paused after the round in progress")
    say_line(f"to continue it: rpdp deploy run {directory} --run-id {run_id}")


def give_up(
    directory: Directory,
    run_id: RunId,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the silos.")] = 600.0,
    as_json: options.Json = False,
) -> None:
    """Give a run up for good. If it has not begun, every silo gets back what it holds for it.

    If it has begun, what was charged stays charged; each silo may add it to `closed_runs` of its silo file.

    Example: `rpdp deploy give-up federation --run-id study-1`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.flower.control import Control
    from rpdp.federation.run_stops import GIVE_UP, ask_to_stop, is_running

    layout = Layout.read(directory)
    home = _unfinished(layout, run_id)
    ask_to_stop(home, GIVE_UP)
    said = f"run {run_id} is given up when the round in progress is over"
    if not is_running(home):  # then a new server process tells the silos
        settings = {"server": str(layout.server), "run-id": run_id}
        log = layout.server / "runs" / f"{run_id}.log"
        status = Control.of(layout).submit(layout.app, settings).wait(timeout=timeout, log=log)
        if "is given up" not in status.details:
            raise RpdpError(f"run {run_id} {status.name}: {status.details or 'no reason given'}; its log is {log}")
        said = status.details.strip()
    if as_json:
        print_json({"run": run_id, "asked": GIVE_UP, "said": said})
        return
    say(said)


def _unfinished(layout: Layout, run_id: str) -> Path:
    """The directory of a run that is not finished."""
    from rpdp.deployment.files.layout import SUMS
    from rpdp.setting_fields import plain_name
    from rpdp.studies.run_directory import is_finished

    home = layout.server / "runs" / plain_name("run-id", run_id)
    if not home.is_dir():
        raise InputError(f"run {run_id}: no such run in {home.parent}; see `rpdp deploy runs`")
    if is_finished(home) or (home / SUMS).is_file():
        raise InputError(f"run {run_id} is finished")
    return home


def metrics(
    directory: Directory,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Serve them on 127.0.0.1 at this port; 0 for a free one."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Print the metrics of the server's runs for Prometheus, or serve them on loopback until SIGTERM or Ctrl-C.

    All of them are public: state, rounds, silos, updates and rejections, times, the ε that each plan promises.

    Example: `rpdp deploy metrics federation --port 9464`
    """
    from rpdp.deployment.files.layout import Layout
    from rpdp.deployment.metrics_server import MetricsServer
    from rpdp.deployment.run_progress import server_metrics

    runs_directory = Layout.read(directory).server / "runs"
    if port is None:
        text = server_metrics(runs_directory)
        print_json({"metrics": text.splitlines()}) if as_json else typer.echo(text, nl=False)
        return
    server = MetricsServer(lambda: server_metrics(runs_directory), port)
    print_json({"address": server.address}) if as_json else say_line(server.address)
    stop_on_signal(server.stop)
    server.serve()
