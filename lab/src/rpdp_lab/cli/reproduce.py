"""`rpdp reproduce`: the paper's tables and figures, and ours, as named suites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpdp.checks import require_count
from rpdp.cli import options  # noqa: TC001 typer evaluates annotations
from rpdp.cli.output import INTERRUPTED, print_json, print_table, report_interruption, say, say_line
from rpdp.cli.progress import ProgressBar
from rpdp.errors import InputError

if TYPE_CHECKING:
    from rpdp_lab.reproduction.engine import Outcome, Progress
    from rpdp_lab.reproduction.page import Rendered

DEFAULT_OUT, DEFAULT_DOCS = Path("runs/reproduce"), Path("docs")
WORDS = ("list", "render")


def reproduce(
    what: Annotated[list[str], typer.Argument(help="Suites by name, `all`, `list`, or `render`.")],
    profile: Annotated[str, typer.Option("--profile", "-p", help="quick, cpu or full.")] = "quick",
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for results; kept between calls.")] = DEFAULT_OUT,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Processes; by default one per core.")] = None,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    docs: Annotated[Path, typer.Option("--docs", help="With render: where the page goes.")] = DEFAULT_DOCS,
    force: Annotated[bool, typer.Option("--force", help="Run again what is there already.")] = False,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Use results of other versions of the code as well.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Every table and figure of the paper as a named suite, run on real data (RPDP_DATA), and the page made from them.

    Finished cells are kept by settings and code version, so an interrupted suite goes on. Cells whose data files are
    missing are skipped and say so. `render` writes docs/reproduction.md from all results.

    Example: `rpdp reproduce all --profile quick --jobs 2`, then `rpdp reproduce render`
    """
    if any(word in what for word in WORDS) and len(what) > 1:
        raise InputError(f"{' '.join(what)}: list and render stand alone; other names are suites")
    if what == ["list"]:
        _list(as_json=as_json)
    elif what == ["render"]:
        from rpdp_lab.reproduction.page import render

        _show_rendered(render(out, docs), as_json=as_json)
    else:
        _run(what, profile, out, jobs, device, force=force, any_version=any_version, as_json=as_json)


def _list(*, as_json: bool) -> None:
    from rpdp_lab.reproduction import PROFILES, SUITES

    if as_json:
        minutes = {name: {profile: suite.minutes[profile] for profile in PROFILES} for name, suite in SUITES.items()}
        print_json({"suites": {name: suite.title for name, suite in SUITES.items()}, "minutes": minutes})
        return
    rows = [
        [name, suite.title, *(f"{len(suite.cells(profile))} / {suite.minutes[profile]:g}" for profile in PROFILES)]
        for name, suite in SUITES.items()
    ]
    columns = ["suite", "what", *(f"{profile}: cells / minutes" for profile in PROFILES)]
    print_table("Suites; minutes are rough, on two cores (full: on a GPU machine)", columns, rows)
    say("Run one with `rpdp reproduce NAME`, all with `rpdp reproduce all`; then `rpdp reproduce render`.")


def _run(
    names: list[str],
    profile: str,
    out: Path,
    jobs: int | None,
    device: str,
    *,
    force: bool,
    any_version: bool,
    as_json: bool,
) -> None:
    from rpdp.federation.workers import cores
    from rpdp_lab.reproduction.cell import require_profile
    from rpdp_lab.reproduction.engine import run_cells
    from rpdp_lab.reproduction.suites import suites_named

    chosen = require_profile(profile)
    suites = suites_named(names)
    workers = cores() if jobs is None else require_count("--jobs", jobs, most=1024)
    if jobs is None and device != "cpu":
        workers = 1
    cells = [cell for suite in suites for cell in suite.cells(chosen)]
    try:
        with _CellBar("reproducing", quiet=as_json) as bar:
            outcome = run_cells(
                cells, out, jobs=workers, device=device, any_version=any_version, force=force, on_cell=bar
            )
    except KeyboardInterrupt:
        report_interruption(f"Every finished cell is kept in {out}; the same command goes on.", None, as_json=as_json)
        raise typer.Exit(INTERRUPTED) from None
    _show_outcome(outcome, out, as_json=as_json)


class _CellBar(ProgressBar):
    """Cells of suites."""

    def __call__(self, progress: Progress) -> None:
        """A cell is done."""
        found = progress.finding
        told = f"skipped: {found.skipped}" if found.skipped is not None else f"{found.seconds:.1f} s"
        self.step(f"{found.suite} {found.name}: {told}", progress.done, progress.total)


def _show_outcome(outcome: Outcome, out: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "cells": [finding.plain() for finding in outcome.findings],
                "reused": outcome.reused,
                "skipped": len(outcome.skipped),
                "directory": str(out),
            }
        )
        return
    total = len(outcome.findings)
    say(f"{total} cells, {outcome.reused} of them there already, {len(outcome.skipped)} skipped for want of data.")
    for reason in dict.fromkeys(str(finding.skipped) for finding in outcome.skipped):
        say_line(f"skipped: {reason}", style="yellow")
    say_line(f"results: {out}; write the page with: rpdp reproduce render --out {out}")


def _show_rendered(rendered: Rendered, *, as_json: bool) -> None:
    if as_json:
        print_json({"files": [str(path) for path in rendered.files], "not_run": list(rendered.empty)})
        return
    for path in rendered.files:
        say_line(str(path))
    if rendered.empty:
        say(f"No results yet, so not on the page: {', '.join(rendered.empty)}.")
