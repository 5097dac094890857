"""Run the cells of suites, a few at a time. Each result is kept as soon as it is there."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

import rpdp
from rpdp.federation.devices import require_device
from rpdp.federation.workers import run_jobs
from rpdp_lab.data.data_files import DataError
from rpdp_lab.reproduction.cell import PROFILES, RESULTS_VERSION, Cell, CellResult
from rpdp_lab.reproduction.cell_files import read_result, write_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_TRAINING = (
    "rpdp_lab.central",
    "rpdp_lab.reproduction.suites.class_training",
    "rpdp_lab.reproduction.suites.federated_runs",
)


@dataclass(frozen=True)
class FinishedCell:
    """Progress: the result of a cell, and how many of all cells are done."""

    result: CellResult
    done: int
    total: int


@dataclass(frozen=True)
class CellsRun:
    """The results of cells in their order; `reused` of them were there already."""

    results: tuple[CellResult, ...]
    reused: int

    @property
    def skipped(self) -> tuple[CellResult, ...]:
        """Those whose data files are missing."""
        return tuple(result for result in self.results if result.skipped is not None)


def run_cells(
    cells: Iterable[Cell],
    directory: Path,
    *,
    jobs: int = 1,
    device: str = "cpu",
    any_version: bool = False,
    force: bool = False,
    on_cell: Callable[[FinishedCell], None] | None = None,
) -> CellsRun:
    """Compute the cells that have no result yet, in `jobs` processes with one thread each, and return all results.

    A cell that two suites or two profiles share is computed once. A cell whose data files are missing is skipped, says
    so, and is tried again next time. With `any_version`, results of other results versions count as well.
    """
    require_device(device, jobs, "--jobs")
    chosen = list({cell.path(directory): cell for cell in cells}.items())
    if not force:
        for path, cell in chosen:
            _take_from_another_profile(cell, path, directory, device)
    missing = [
        (path, cell) for path, cell in chosen if force or not _usable(cell, path, device, any_version=any_version)
    ]
    done = len(chosen) - len(missing)
    if missing and jobs > 1:
        for module in _TRAINING:
            importlib.import_module(module)  # once, before forking, and not again in every process

    def job(path: Path, cell: Cell) -> Callable[[], None]:
        return lambda: write_result(_compute(cell, device), path)

    def finished(index: int) -> None:
        nonlocal done
        done += 1
        result = read_result(missing[index][0])
        if on_cell is not None and result is not None:
            on_cell(FinishedCell(result, done, len(chosen)))

    run_jobs([job(path, cell) for path, cell in missing], jobs, finished)
    results = [read_result(path) for path, _ in chosen]
    return CellsRun(tuple(result for result in results if result is not None), len(chosen) - len(missing))


def _take_from_another_profile(cell: Cell, path: Path, directory: Path, device: str) -> None:
    """Copy the result of a cell with the same name and settings in another profile."""
    if _usable(cell, path, device):
        return
    for profile in PROFILES:
        result = _usable(cell, replace(cell, profile=profile).path(directory), device)
        if result is not None:
            write_result(replace(result, profile=cell.profile), path)
            return


def _usable(cell: Cell, path: Path, device: str, *, any_version: bool = False) -> CellResult | None:
    """The result in a file, if it stands for the cell."""
    result = read_result(path)
    if result is None or result.skipped is not None or result.device != device:
        return None
    return result if result.has_settings_of(cell) and (any_version or result.is_current) else None


def _compute(cell: Cell, device: str) -> CellResult:
    if device == "cpu":
        torch.set_num_threads(1)  # cells run side by side, and rounding must not depend on the number of cores
    start = time.perf_counter()
    numbers, skipped = {}, None
    try:
        numbers = cell.work(cell.settings, device)
    except DataError as error:
        skipped = str(error)
    return CellResult(
        suite=cell.suite,
        part=cell.part,
        name=cell.name,
        profile=cell.profile,
        settings=cell.settings,
        numbers=numbers,
        skipped=skipped,
        seconds=round(time.perf_counter() - start, 2),
        device=device,
        results_version=RESULTS_VERSION,
        rpdp_version=rpdp.__version__,
    )
