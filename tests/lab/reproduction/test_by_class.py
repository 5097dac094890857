from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rpdp_lab.reproduction.suites.by_class import FAIRNESS, FIGURE_9, HEART
from rpdp_lab.reproduction.work import by_class

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
    cell = FIGURE_9.cells("quick")[0]
    found = by_class.train(cell.settings, "cpu")
    assert len(found["by_step"]) == cell.settings["steps"] == 20
    assert found["by_step"][-1]["by_class"] == found["by_class"]
    normal, abnormal = found["q"]
    assert normal > 5 * abnormal  # ten times the budget, drawn far more often


def test_logits_adjusted_in_the_loss_help_the_class_that_allows_little(real_data: Path) -> None:
    """Ten splits: accuracy on abnormal patients (ε = 0.05) rises by a fifth at least, at the same probabilities."""
    plain, adjusted = (
        [by_class.train(settings(remedy=remedy, seed=seed, split=seed), "cpu") for seed in range(10)]
        for remedy in ("none", "loss")
    )
    assert plain[0]["q"] == adjusted[0]["q"]
    before, after = (np.mean([found["by_class"][1] for found in runs]) for runs in (plain, adjusted))
    assert after > before + 0.2


def test_adjusting_afterwards_moves_decisions_only(real_data: Path) -> None:
    outputs = torch.tensor([[0.3], [-0.2]])
    shifted = by_class._shifted(outputs, torch.tensor([0.9, 0.1]).log())
    torch.testing.assert_close(shifted - outputs, torch.full((2, 1), float(np.log(1 / 9))))


def test_a_cap_leaves_budget_unused(real_data: Path) -> None:
    free = by_class.train(settings(), "cpu")
    capped = by_class.train(settings(remedy="cap", cap=4.0), "cpu")
    assert capped["q"][1] == free["q"][1]
    assert capped["q"][0] < free["q"][0]


def test_every_remedy_of_the_suite_runs(real_data: Path) -> None:
    wanted = {cell.settings["label"]: cell for cell in FAIRNESS.cells("quick") if cell.settings.get("case") == "heart"}
    assert len(wanted) == 6
    for cell in wanted.values():
        assert 0.3 < by_class.train(cell.settings, "cpu")["accuracy"] < 1.0
