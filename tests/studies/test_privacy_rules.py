"""Rules of privacy.md that a seeded bug has shown to need a test of their own: what a run makes public."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rpdp.budgets import BudgetTable
from rpdp.studies.building import build
from rpdp.studies.execution import execute
from rpdp.studies.run_directory import write_result
from rpdp.studies.study_file import StudyFile
from tests.studies.toy import write_run

if TYPE_CHECKING:
    from pathlib import Path

    from rpdp.federation import SiloView
    from rpdp.studies.building import PreparedRun

PUBLIC_FILES = ("public-plan.json", "rounds.jsonl", "model.safetensors", "result.json")


def built_with(directory: Path, epsilon: float) -> PreparedRun:
    """The run of a hospital whose records all allow this ε."""
    for silo in "abc":
        BudgetTable([f"{silo}-{row}" for row in range(40)], np.full(40, epsilon)).write(directory / f"{silo}.csv")
    spec = StudyFile.read(
        write_run(
            directory,
            ("budgets.distribution", None),
            ("budgets.files", '{ a = "a.csv", b = "b.csv", c = "c.csv" }'),
            ("budgets.declared", '"ThreeLevels"'),
            ("privacy.noise_multiplier", None),
            ("privacy.max_epsilon", "6"),
        )
    )
    return build(spec, spec.settings("rpdp"), 1)


def test_public_settings_do_not_depend_on_the_budgets_in_the_data(tmp_path: Path) -> None:
    one, other = built_with(tmp_path, 0.5), built_with(tmp_path, 5.0)
    assert one.public == other.public
    assert one.plans["a"].q.tolist() != other.plans["a"].q.tolist()  # the control: the budgets were read


def with_other_secrets(view: SiloView) -> SiloView:
    plan = replace(view.plan, q=view.plan.q / 2.0, cost=view.plan.cost / 2.0)
    return replace(view, plan=plan, draws=view.draws + 1, expected_draws=view.expected_draws / 2.0)


def test_the_public_part_does_not_depend_on_anything_sensitive(tmp_path: Path) -> None:
    """A real run that drew other records at other rates, and took longer for it, leaves the same public files."""
    spec = StudyFile.read(write_run(tmp_path))
    made = build(spec, spec.settings("rpdp"), 1)
    result = replace(execute(made, workers=1), seed=None)
    other = replace(
        result,
        silos={name: with_other_secrets(view) for name, view in result.silos.items()},
        rounds=tuple(replace(log, seconds=log.seconds + 9.0) for log in result.rounds),
        seconds=result.seconds + 99.0,
    )
    for name, one in (("one", result), ("other", other)):
        write_result(one, made.model, tmp_path / name)
    for name in PUBLIC_FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    private = [tmp_path / name / "silo" / "a" / "view.json" for name in ("one", "other")]
    assert private[0].read_bytes() != private[1].read_bytes()  # the control: there is something to hide
