"""`rpdp-lab reproduce`: the paper's tables and figures, and ours, as named suites."""

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
    from rpdp_lab.reproduction.reproduction_page import RenderedPage
    from rpdp_lab.reproduction.run_cells import CellsRun, FinishedCell

DEFAULT_OUT, DEFAULT_DOCS, DEFAULT_CELLS = Path("runs/reproduce"), Path("docs"), Path("lab/cells")
ALONE = ("list", "render")


def reproduce(
    what: Annotated[list[str], typer.Argument(help="Suites by name, `all`, `list`, or `render`.")],
    profile: Annotated[str, typer.Option("--profile", "-p", help="quick, cpu or full.")] = "quick",
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for results; kept between calls.")] = DEFAULT_OUT,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Processes; by default one per core.")] = None,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    docs: Annotated[Path, typer.Option("--docs", help="With render: where the page goes.")] = DEFAULT_DOCS,
    cells: Annotated[
        Path, typer.Option("--cells", help="With render: where the results of all suites are kept.")
    ] = DEFAULT_CELLS,
    force: Annotated[bool, typer.Option("--force", help="Run again what is there already.")] = False,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Do not run again what has another results version.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Run the paper's tables and figures on real data (RPDP_DATA), and make the page that shows them.

    Finished cells are kept by their settings and a results version, so an interrupted suite continues. Cells whose data
    files are missing are skipped and say so; if all are, that is an error. `render` writes
    docs/reproduction.md from all results.

    Example: `rpdp-lab reproduce all --profile quick --jobs 2`, then `rpdp-lab reproduce render`
    """
    if any(name in what for name in ALONE) and len(what) > 1:
        raise InputError(f"{' '.join(what)}: list and render stand alone; other names are suites")
    if what == ["list"]:
        _list(as_json=as_json)
    elif what == ["render"]:
        from rpdp_lab.reproduction.reproduction_page import render

        _show_rendered(render(out, docs, cells), as_json=as_json)
    else:
        _run(what, profile, out, jobs, device, force=force, any_version=any_version, as_json=as_json)


def _list(*, as_json: bool) -> None:
    from rpdp_lab.reproduction import PROFILES
    from rpdp_lab.reproduction.suites import SUITES

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
    say("Run one with `rpdp-lab reproduce NAME`, all with `rpdp-lab reproduce all`; then `rpdp-lab reproduce render`.")


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
    from rpdp_lab.reproduction.run_cells import run_cells
    from rpdp_lab.reproduction.suites import suites_named

    chosen = require_profile(profile)
    suites = suites_named(names)
    workers = cores() if jobs is None else require_count("--jobs", jobs, most=1024)
    if jobs is None and device != "cpu":
        workers = 1
    cells = [cell for suite in suites for cell in suite.cells(chosen)]
    try:
        with _SuiteProgress("reproducing", quiet=as_json) as progress:
            done = run_cells(
                cells, out, jobs=workers, device=device, any_version=any_version, force=force, on_cell=progress
            )
    except KeyboardInterrupt:
        report_interruption(f"Every finished cell is kept in {out}; the same command continues.", None, as_json=as_json)
        raise typer.Exit(INTERRUPTED) from None
    if done.results and len(done.skipped) == len(done.results):
        reasons = dict.fromkeys(str(result.skipped) for result in done.skipped)
        raise InputError(f"every cell was skipped because its data are missing: {'; '.join(reasons)}")
    _show_run(done, out, as_json=as_json)


class _SuiteProgress(ProgressBar):
    """A line or a bar for the cells of suites."""

    def __call__(self, finished: FinishedCell) -> None:
        """A cell is done."""
        result = finished.result
        outcome = f"skipped: {result.skipped}" if result.skipped is not None else f"{result.seconds:.1f} s"
        self.step(f"{result.suite} {result.name}: {outcome}", finished.done, finished.total)


def _show_run(done: CellsRun, out: Path, *, as_json: bool) -> None:
    if as_json:
        from rpdp_lab.reproduction.cell_files import plain

        cells = [plain(result) for result in done.results]
        print_json({"cells": cells, "reused": done.reused, "skipped": len(done.skipped), "directory": str(out)})
        return
    total = len(done.results)
    say(f"{total} cells, {done.reused} of them there already, {len(done.skipped)} skipped because data are missing.")
    for reason in dict.fromkeys(str(result.skipped) for result in done.skipped):
        say_line(f"skipped: {reason}", style="yellow")
    say_line(f"results: {out}; write the page with: rpdp-lab reproduce render --out {out}")


def _show_rendered(rendered: RenderedPage, *, as_json: bool) -> None:
    if as_json:
        print_json({"files": [str(path) for path in rendered.files], "not_run": list(rendered.empty)})
        return
    for path in rendered.files:
        say_line(str(path))
    if rendered.empty:
        say(f"No results yet, so not on the page: {', '.join(rendered.empty)}.")
