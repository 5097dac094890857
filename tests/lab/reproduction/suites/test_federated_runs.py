from __future__ import annotations

import importlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rpdp_lab.reproduction.cell import PROFILES
from rpdp_lab.reproduction.suites import SUITES, federated_runs
from rpdp_lab.reproduction.suites.federated_runs import one_run, study_file, study_text
from rpdp_lab.reproduction.suites.federations import federated_run
from rpdp_lab.reproduction.suites.task_names import REFERENCES

from rpdp.federation.backbones import make_backbone
from rpdp.studies.execution import execute
from rpdp.tasks.embedded import load_breast_cancer

if TYPE_CHECKING:
    from rpdp_lab.reproduction.cell import Profile

    from rpdp.federation import RunResult
    from rpdp.studies.building import PreparedRun


@pytest.mark.parametrize("profile", PROFILES)
def test_every_federated_cell_is_a_good_study_file(profile: Profile) -> None:
    texts = {
        study_text({**cell.settings, "seed": 1}): cell.settings
        for suite in ("figure-8", "utility")
        for cell in SUITES[suite].cells(profile)
        if cell.work is federated_run
    }
    assert len(texts) > 30
    for settings in texts.values():
        study = study_file(settings)
        assert study.public_schedule.rounds == settings["schedule"]["rounds"]
        assert study.privacy.clip_norm == settings["privacy"]["clip_norm"]
        make_backbone(study.recipe(study.training.learning_rate), ["a"], study.public_schedule.local_steps)


def test_settings_name_no_modules_and_every_stable_name_leads_somewhere() -> None:
    """Results are kept by settings: a module that moves must not change them."""
    for suite in SUITES.values():
        for profile in PROFILES:
            for cell in suite.cells(profile):
                assert "rpdp" not in json.dumps(dict(cell.settings)).replace('"method": "rpdp"', ""), cell
    for reference in REFERENCES.values():
        module, _, name = reference.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), reference


def embedded(**changes: Any) -> dict[str, Any]:
    return {
        "task": {"name": "breast_cancer"},
        "schedule": {"rounds": 3, "local_steps": 4, "participation": 1.0},
        "privacy": {"delta": 1e-3, "max_epsilon": 10.0, "clip_norm": 1.0},
        "budgets": {"distribution": "ThreeLevels", "records_per_silo": 90},
        "training": {"learning_rate": 0.5},
        "method": "rpdp",
        "seed": 1,
        "split": "by_seed",
        **changes,
    }


def test_a_run_gives_accuracy_by_round_and_by_budget_group() -> None:
    found = one_run(embedded(), "cpu")
    assert found["overdrawn"] == 0
    assert found["by_round"][-1] == pytest.approx(found["accuracy"], abs=1e-4)
    assert len(found["by_round"]) == 3
    assert list(found["groups"]) == ["0.1", "1", "5"]


def test_records_in_no_silo_are_measured_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    assert one_run(embedded(), "cpu")["unseen"] is None
    everything = load_breast_cancer()
    right = everything.with_features(everything.features, "the same")
    wrong = replace(right, labels=1 - right.labels)
    found = []
    for chosen in (right, wrong):
        monkeypatch.setattr(federated_runs, "UNSEEN", {"breast_cancer": lambda split, chosen=chosen: chosen})
        found.append(one_run(embedded(), "cpu")["unseen"])
    assert found[0] > 0.7
    assert found[1] == pytest.approx(1 - found[0])


def test_a_method_that_breaks_promises_is_seen() -> None:
    found = one_run(embedded(method="uniform", level=1.0), "cpu")
    assert found["overdrawn"] > 0.6 * found["records"]


def test_the_silos_train_on_the_device_of_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def noted(built: PreparedRun, *, workers: int | None) -> RunResult:
        seen.append(({str(silo.device) for silo in built.silos}, workers))
        return execute(built, workers=workers)

    monkeypatch.setattr(federated_runs, "execute", noted)
    other, usual = one_run(embedded(), "cpu:0"), one_run(embedded(), "cpu")
    assert seen == [({"cpu:0"}, 1), ({"cpu"}, 1)]
    assert {**other, "seconds": 0} == {**usual, "seconds": 0}
