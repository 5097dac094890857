from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rpdp_lab.reproduction.suites import class_training, fairness, figure_9
from rpdp_lab.reproduction.suites.class_budgets import HEART

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_data")


def settings(**changes: Any) -> dict[str, Any]:
    base = {
        "remedy": "none",
        "sigma_factor": 1.0,
        "level": None,
        "method": "rpdp",
        "trace": False,
        "seed": 1,
        "split": 1,
    }
    return {**HEART, **base, **changes}


def test_figure_9_follows_every_iteration(real_data: Path) -> None:
    cell = figure_9.cells("quick")[0]
    found = class_training.train(cell.settings, "cpu")
    assert len(found["by_step"]) == cell.settings["steps"] == 20
    assert found["by_step"][-1]["by_class"] == found["by_class"]
    normal, abnormal = found["q"]
    assert normal > 5 * abnormal  # ten times the budget, drawn far more often


def test_logits_adjusted_in_the_loss_help_the_class_that_allows_little(real_data: Path) -> None:
    """Ten splits: accuracy on abnormal patients (ε = 0.05) rises by a fifth at least, at the same probabilities."""
    plain, adjusted = (
        [class_training.train(settings(remedy=remedy, seed=seed, split=seed), "cpu") for seed in range(10)]
        for remedy in ("none", "loss")
    )
    assert plain[0]["q"] == adjusted[0]["q"]
    before, after = (np.mean([found["by_class"][1] for found in runs]) for runs in (plain, adjusted))
    assert after > before + 0.2


def test_adjusting_afterwards_moves_decisions_only(real_data: Path) -> None:
    outputs = torch.tensor([[0.3], [-0.2]])
    shifted = class_training._shifted(outputs, torch.tensor([0.9, 0.1]).log())
    torch.testing.assert_close(shifted - outputs, torch.full((2, 1), float(np.log(1 / 9))))


def test_a_cap_leaves_budget_unused(real_data: Path) -> None:
    free = class_training.train(settings(), "cpu")
    capped = class_training.train(settings(remedy="cap", cap=4.0), "cpu")
    assert capped["q"][1] == free["q"][1]
    assert capped["q"][0] < free["q"][0]


def test_every_remedy_of_the_suite_runs(real_data: Path) -> None:
    wanted = {cell.settings["label"]: cell for cell in fairness.cells("quick") if cell.settings.get("case") == "heart"}
    assert len(wanted) == 6
    for cell in wanted.values():
        assert 0.3 < class_training.train(cell.settings, "cpu")["accuracy"] < 1.0
