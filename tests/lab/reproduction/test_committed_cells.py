"""The committed results belong to cells of today, the committed page is made from them, and they can be repeated."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from rpdp_lab.reproduction.cell import PROFILES, RESULTS_VERSION, Cell, CellResult, Numbers, Settings
from rpdp_lab.reproduction.cell_files import read_bundles
from rpdp_lab.reproduction.reproduction_page import render
from rpdp_lab.reproduction.run_cells import run_cells
from rpdp_lab.reproduction.suites import SUITES

from tests.lab.reproduction.test_cell_files import FORMER

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "lab/cells"
SAMPLE, MOST_SECONDS = 12, 15.0
"""How many cells the slow test repeats, and how long each may have taken."""


def _cells() -> dict[tuple[str, str, str], Cell]:
    listed = (cell for suite in SUITES.values() for profile in PROFILES for cell in suite.cells(profile))
    return {(cell.profile, cell.suite, cell.name): cell for cell in listed}


def test_every_committed_result_belongs_to_a_cell_and_has_a_known_version() -> None:
    """Results of an earlier version stand until their cells are run anew; the page says which they are."""
    cells, results = _cells(), read_bundles(COMMITTED)
    assert len(results) > 2000
    for each in results:
        assert each.has_settings_of(cells[each.profile, each.suite, each.name]), each.name
        assert 1 <= each.results_version <= RESULTS_VERSION
        assert each.rpdp_version


def test_conversion_from_format_1_changed_no_number() -> None:
    committed = {(each.profile, each.suite, each.name): each for each in read_bundles(COMMITTED)}
    for former in read_bundles(FORMER):
        assert committed[former.profile, former.suite, former.name] == former


def test_the_committed_page_is_made_from_the_committed_results(tmp_path: Path) -> None:
    bundles = tmp_path / "cells"
    bundles.mkdir()
    for path in COMMITTED.glob("*.json"):
        (bundles / path.name).write_bytes(path.read_bytes())
    rendered = render(tmp_path / "nothing", tmp_path / "docs", bundles)
    assert rendered.empty == ()
    for path in rendered.files:
        home = COMMITTED / path.name if path.parent == bundles else ROOT / path.relative_to(tmp_path)
        assert path.read_bytes() == home.read_bytes(), path.name


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("real_data")
def test_a_random_sample_of_committed_cells_gives_the_same_digits_again(tmp_path: Path) -> None:
    """A failure names the seed of the sample; set RPDP_SAMPLE to it to repeat. See `RESULTS_VERSION`.

    The cache is empty at first, so the features of MNIST take some minutes before the cells do.
    """
    seed = int(os.environ.get("RPDP_SAMPLE") or random.SystemRandom().randrange(10**6))
    cells, chosen = _cells(), _sample(seed)
    assert len(chosen) == SAMPLE
    again = run_cells([cells[each.profile, each.suite, each.name] for each in chosen], tmp_path, jobs=2)
    for committed, repeated in zip(chosen, again.results, strict=True):
        assert agrees(committed, repeated.numbers), (f"RPDP_SAMPLE={seed}", committed, repeated.numbers)


def _sample(seed: int) -> list[CellResult]:
    """Short cells, taking turns among the suites."""
    generator = random.Random(seed)  # noqa: S311 chooses tests
    by_suite = defaultdict[str, list[CellResult]](list)
    for each in read_bundles(COMMITTED):
        if each.seconds <= MOST_SECONDS and each.skipped is None:
            by_suite[each.suite].append(each)
    order = generator.sample(sorted(by_suite), len(by_suite))
    return [generator.choice(by_suite[order[number % len(order)]]) for number in range(SAMPLE)]


def agrees(committed: CellResult, numbers: Numbers) -> bool:
    """The same digits; for networks, whose convolutions round differently on another CPU, accuracies within 0.003."""
    if not _trains_network(committed.settings):
        return bool(digits(numbers) == digits(committed.numbers))
    return abs(float(numbers["accuracy"]) - float(committed.numbers["accuracy"])) < 3e-3


def _trains_network(settings: Settings) -> bool:
    task = settings.get("task")
    if isinstance(task, dict):
        return not str(task.get("model", task.get("name"))).startswith(("linear", "heart"))
    return task == "mnist" or str(settings.get("model")).startswith("cnn")


def digits(value: Any) -> Any:
    """What a page would print: floats to four significant digits, without times."""
    if isinstance(value, dict):
        return {key: digits(each) for key, each in value.items() if not key.startswith("seconds")}
    if isinstance(value, list):
        return [digits(each) for each in value]
    return f"{value:.4g}" if isinstance(value, float) else value


def test_networks_are_told_from_the_rest() -> None:
    by_kind = {
        kind: [each for each in read_bundles(COMMITTED) if _trains_network(each.settings) is kind]
        for kind in (True, False)
    }
    assert {each.suite for each in by_kind[True]} == {"table-2", "table-3", "table-4", "figure-8", "utility"}
    other = by_kind[True][0]
    assert agrees(other, {"accuracy": other.numbers["accuracy"] + 0.002})
    assert not agrees(other, {"accuracy": other.numbers["accuracy"] + 0.004})
    heart = next(each for each in by_kind[False] if each.part == "heart")
    assert not agrees(heart, {**heart.numbers, "accuracy": heart.numbers["accuracy"] + 0.002})


def test_times_and_further_digits_do_not_count_as_changes() -> None:
    found = {"accuracy": 0.81231, "seconds": 3.0, "by_class": [0.5, None], "fit": {"seconds_per_step": 1.0, "a": 2}}
    assert digits(found) == digits({**found, "accuracy": 0.81232, "seconds": 9.0})
    assert digits(found) != digits({**found, "accuracy": 0.8124})
    assert digits(found) != digits({**found, "fit": {"a": 3}})
