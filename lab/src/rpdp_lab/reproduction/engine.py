"""Run the cells of suites: a few at a time, each result kept as soon as it is there."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rpdp.federation.devices import require_device
from rpdp.federation.workers import run_jobs
from rpdp_lab.data.data_files import DataError
from rpdp_lab.reproduction.cell import PROFILES, Cell, CellResult, code_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Progress:
    """A cell is done: the how manieth, of how many, and what was found."""

    done: int
    total: int
    finding: CellResult


@dataclass(frozen=True)
class Outcome:
    """What became of the cells: findings in their order; `reused` were there already."""

    findings: tuple[CellResult, ...]
    reused: int

    @property
    def skipped(self) -> tuple[CellResult, ...]:
        """Those whose data are missing."""
        return tuple(finding for finding in self.findings if finding.skipped is not None)


def run_cells(
    cells: Iterable[Cell],
    directory: Path,
    *,
    jobs: int = 1,
    device: str = "cpu",
    any_version: bool = False,
    force: bool = False,
    on_cell: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Compute what is not there yet, in `jobs` processes with a thread each, and return everything.

    Two suites may share a cell; it is computed once, and so is one that another profile has too. A cell whose data
    files are missing is skipped and says so; it is tried again next time. With `any_version`, results of other code are
    used as well.
    """
    require_device(device, jobs, "--jobs")
    chosen = list({cell.home(directory): cell for cell in cells}.items())
    if not force:
        for home, cell in chosen:
            _take_from_another_profile(cell, home, directory, device)
    missing = [
        (home, cell) for home, cell in chosen if force or not _found(cell, home, device, any_version=any_version)
    ]
    done = len(chosen) - len(missing)
    for _, cell in missing:
        cell.load()  # once, here, and not in every process

    def job(home: Path, cell: Cell) -> Callable[[], None]:
        return lambda: _compute(cell, device).write(home)

    def finished(index: int) -> None:
        nonlocal done
        done += 1
        found = CellResult.read(missing[index][0])
        if on_cell is not None and found is not None:
            on_cell(Progress(done, len(chosen), found))

    run_jobs([job(home, cell) for home, cell in missing], jobs, finished)
    findings = [CellResult.read(home) for home, _ in chosen]
    return Outcome(tuple(found for found in findings if found is not None), len(chosen) - len(missing))


def _take_from_another_profile(cell: Cell, home: Path, directory: Path, device: str) -> None:
    """A cell that another profile has computed with the same settings and code need not be computed again."""
    if _found(cell, home, device):
        return
    for profile in PROFILES:
        theirs = _found(cell, replace(cell, profile=profile).home(directory), device)
        if theirs is not None:
            replace(theirs, profile=cell.profile).write(home)
            return


def _found(cell: Cell, home: Path, device: str, *, any_version: bool = False) -> CellResult | None:
    """What was computed before, if it answers the cell."""
    found = CellResult.read(home)
    if found is None or found.skipped is not None or found.device != device:
        return None
    answers = found.answers(cell) if any_version else found.key == cell.key
    return found if answers else None


def _compute(cell: Cell, device: str) -> CellResult:
    start = time.perf_counter()
    numbers, skipped = {}, None
    try:
        numbers = cell.run(device)
    except DataError as error:
        skipped = str(error)
    seconds = round(time.perf_counter() - start, 2)
    return CellResult(
        suite=cell.suite,
        part=cell.part,
        name=cell.name,
        profile=cell.profile,
        settings=cell.settings,
        numbers=numbers,
        skipped=skipped,
        seconds=seconds,
        key=cell.key,
        code=code_digest()[:12],
        device=device,
    )
