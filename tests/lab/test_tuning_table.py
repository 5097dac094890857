from __future__ import annotations

from pathlib import Path

import pytest
from rpdp_lab.tuning_table import SeedResult, rows_of, study_with

from rpdp.studies.tuning_plan import trials_of

STUDY = Path(__file__).parents[2] / "examples" / "heart.toml"


def test_all_recipes_have_the_same_total() -> None:
    spec = study_with(STUDY, [0.1, 0.3], "accuracy", 60, share=0.5, estimator="everyone")
    trials = trials_of(spec, is_real=False)
    assert [trial.name for trial in trials] == ["rate-0.1", "rate-0.3"]
    assert sum(trial.spec.privacy.share or 0.0 for trial in trials) == spec.privacy.share == 1.0
    assert spec.evaluation.metrics == ("accuracy",)


def test_rows() -> None:
    found = [
        SeedResult(1, "a", {"a": 0.6, "b": 0.7}, {"a": 0.8, "b": 0.9}),
        SeedResult(2, "b", {"a": 0.6, "b": 0.8}, {"a": 0.8, "b": 0.7}),
    ]
    rows = {name: (spread.mean, spread.deviation) for name, spread in rows_of(found)}
    assert rows["`rpdp tune`"] == pytest.approx((0.7, 0.02**0.5))
    assert rows["the same, if the choice were free of noise"][0] == pytest.approx(0.75)
    assert rows["declared alone: a"] == pytest.approx((0.8, 0.0))
    assert rows["declared at random"][0] == pytest.approx(0.8)
    assert rows["tune − declared b"][0] == pytest.approx((0.6 - 0.9 + 0.8 - 0.7) / 2)
