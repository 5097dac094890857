"""From a study file to a federation: the same way for every method, and clear words when it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from rpdp.accounting.renyi_filter import ORDERS
from rpdp.budgets import BudgetTable
from rpdp.errors import BudgetError, InputError, PrivacyRefusal, RpdpError
from rpdp.methods import METHODS
from rpdp.studies.building import TESTED, TUNED, PreparedRun, build
from rpdp.studies.execution import execute
from rpdp.studies.study_file import StudyFile
from tests.studies.toy import Change, write_run

if TYPE_CHECKING:
    from rpdp.federation import RunResult

FITTED: list[Change] = [("schedule.local_steps", "40"), ("privacy.noise_multiplier", "6")]
"""Where the exponential fit of scf converges."""

LEVELS: list[Change] = [("methods.threshold.level", "1"), ("methods.uniform.level", "1")]


def built(directory: Path, *changes: Change, method: str = "rpdp", seed: int = 1) -> PreparedRun:
    spec = StudyFile.read(write_run(directory, *changes))
    return build(spec, spec.settings(method), seed)


def ran(directory: Path, *changes: Change, method: str = "rpdp", seed: int = 1) -> RunResult:
    return execute(built(directory, *changes, method=method, seed=seed), workers=1)


def write_budgets(directory: Path, budgets: dict[str, list[float]]) -> list[Change]:
    for silo, values in budgets.items():
        BudgetTable([f"{silo}-{row}" for row in range(len(values))], values).write(directory / f"{silo}.csv")
    files = ", ".join(f'{silo} = "{silo}.csv"' for silo in budgets)
    return [
        ("budgets.distribution", None),
        ("budgets.files", f"{{ {files} }}"),
        ("budgets.declared", '"ThreeLevels"'),
    ]


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_is_built_and_runs(tmp_path: Path, method: str) -> None:
    result = ran(tmp_path, *LEVELS, *FITTED, method=method)
    assert (result.method, result.seed, len(result.rounds)) == (method, 1, 3)
    assert result.score is not None
    over = sum(view.overdrawn for view in result.silos.values())
    assert (over > 0) == (method in ("uniform", "dp_fedavg", "privacy_free", "pooled"))


def test_pooled_is_plain_training_on_all_records_in_one_place(tmp_path: Path) -> None:
    """One full step of it is a step along the mean gradient of all silos together; every silo's test records count."""
    changes = [("schedule.rounds", "1"), ("schedule.local_steps", "1"), ("training.learning_rate", "1.0")]
    everyone = [("budgets.overrides", "{ levels = [9.0], shares = [1.0] }"), ("privacy.noise_multiplier", "3.0")]
    made = built(tmp_path, *changes, *everyone, method="pooled")
    (silo,) = made.silos
    assert sorted(silo.budgets.ids.to_pylist()) == sorted(f"{name}/{name}-{row}" for name in "abc" for row in range(40))
    q = made.public.normaliser / 120
    assert made.public.weights == 1.0
    start = [value.detach().clone() for value in made.model.parameters()]
    result = execute(made, workers=1)
    assert result.score is not None
    assert set(result.score.by_silo) == {"a", "b", "c"}
    held = silo.records
    output = torch.sigmoid(held.inputs[0] @ start[0].T + start[1])[:, 0] - held.targets
    expected = start[0] - (output[:, None] * held.inputs[0]).mean(dim=0)
    assert q == pytest.approx(1.0, abs=0.02)  # so that nobody is left out of the only step
    torch.testing.assert_close(result.model.weight.data, expected, atol=1e-3, rtol=0.0)


@pytest.mark.parametrize("method", ["privacy_free", "pooled"])
def test_a_method_without_a_promise_is_refused_in_a_real_run(tmp_path: Path, method: str) -> None:
    spec = StudyFile.read(write_run(tmp_path))
    with pytest.raises(PrivacyRefusal, match=f"{method} promises nothing"):
        build(spec, spec.settings(method), None, ledgers={})


def test_methods_share_everything_but_the_normaliser_and_their_notes(tmp_path: Path) -> None:
    ours = built(tmp_path).public
    for method in ("minimum", "dropout", "privacy_free"):
        theirs = built(tmp_path, method=method).public
        for name in ("schedule", "noise_multiplier", "delta", "clip_norm", "weights", "recipe", "model_fingerprint"):
            assert getattr(theirs, name) == getattr(ours, name)


def test_policy_gives_the_noise(tmp_path: Path) -> None:
    made = built(tmp_path, ("privacy.noise_multiplier", None), ("privacy.max_epsilon", "4"))
    assert 3.98 <= made.public.curve.largest_cost <= 4.0


def test_budgets_follow_seed_and_silo(tmp_path: Path) -> None:
    def epsilon(seed: int) -> dict[str, list[float]]:
        return {silo.name: silo.budgets.epsilon.tolist() for silo in built(tmp_path, seed=seed).silos}

    first = epsilon(1)
    assert first == epsilon(1)
    assert first["a"] != first["b"]
    assert first["a"] != epsilon(2)["a"]
    assert sorted(set(first["a"])) == [0.3, 1.0, 5.0]


@pytest.mark.parametrize(("split", "same"), [("fixed", True), ("by_seed", False)])
def test_the_seed_changes_the_split_only_if_told(tmp_path: Path, split: str, same: bool) -> None:
    one, two = (built(tmp_path, ("run.split", f'"{split}"'), seed=seed) for seed in (1, 2))
    assert torch.equal(one.silos[0].records.inputs[0], two.silos[0].records.inputs[0]) == same


def test_the_seed_starts_an_own_model(tmp_path: Path) -> None:
    spec = StudyFile.read(write_run(tmp_path))
    weights = [build(spec, spec.settings("rpdp"), seed).model.weight.tolist() for seed in (1, 1, 2)]  # type: ignore[operator]
    assert weights[0] == weights[1] != weights[2]


def test_notes_of_the_plan(tmp_path: Path) -> None:
    assert built(tmp_path).public.notes == (TESTED,)
    tuned = built(tmp_path, ("training.tuned", "true"), ("budgets.records_per_silo", None))
    assert tuned.public.notes[:2] == (TESTED, TUNED)
    assert "mean number of training records of a silo, 40" in tuned.public.notes[2]
    minimum = built(tmp_path, method="minimum").public
    assert "not covered: the ε of method minimum" in minimum.notes[1]
    assert built(tmp_path, ("task.data", "without_tests")).public.notes == ()


def test_data_notes_of_a_built_in_task_are_kept(tmp_path: Path) -> None:
    made = built(tmp_path, ("task", ""), ("task.name", '"breast_cancer"'))
    assert "published description of the data set" in made.public.notes[0]
    assert list(made.plans) == [silo.name for silo in made.silos] == [f"silo-0{number}" for number in range(4)]


def test_estimators(tmp_path: Path) -> None:
    made = built(tmp_path, ("privacy.estimator", '"scf"'), *FITTED)
    assert {plan.estimator for plan in made.plans.values()} == {"scf"}
    assert {plan.estimator for plan in built(tmp_path).plans.values()} == {"certified"}


def test_weights(tmp_path: Path) -> None:
    assert built(tmp_path, ("training.weights", '"equal"')).public.weights == 1.0
    assert built(tmp_path, ("training.weights", "{ a = 1, b = 2, c = 3 }")).public.weight("b") == 2.0
    with pytest.raises(InputError, match=r"training\.weights names a; the silos are a, b, c"):
        built(tmp_path, ("training.weights", "{ a = 1 }"))


def test_budget_files(tmp_path: Path) -> None:
    values = {silo: np.linspace(0.5, 5, 40).tolist() for silo in "abc"}
    made = built(tmp_path, *write_budgets(tmp_path, values))
    assert all(np.allclose(silo.budgets.epsilon, values[silo.name]) for silo in made.silos)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (
            {"a": 40, "b": 37, "c": 40},
            "run.toml: budgets.files: silo b: 3 of 40 records have no budget, the first is 'b-37'",
        ),
        ({"a": 40, "b": 40, "c": 42}, "silo c: 2 budgets belong to no record, the first is 'c-40'"),
        ({"a": 40, "b": 40}, "budgets.files must name exactly the silos a, b, c; missing: c"),
        ({"a": 40, "b": 40, "c": 40, "d": 40}, "budgets.files must name exactly the silos a, b, c; unknown: d"),
    ],
)
def test_budgets_that_do_not_fit(tmp_path: Path, counts: dict[str, int], expected: str) -> None:
    changes = write_budgets(tmp_path, {silo: [1.0] * count for silo, count in counts.items()})
    with pytest.raises(BudgetError) as caught:
        built(tmp_path, *changes)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "kind", "expected"),
    [
        ([("task.data", "one_empty")], InputError, "silo b: it has no training records"),
        ([("task.data", "repeated_ids")], InputError, "silo b: 1 record ids occur more than once"),
        ([("task.data", "too_few_ids")], InputError, "silo a: 39 record ids for 40 training records"),
        ([("task.data", "odd_name")], InputError, "silo '../a': its name becomes a directory"),
        ([("task.data", "list_instead")], InputError, "returned list; it must return FederatedData, or silo →"),
        ([("task.data", "two_instead")], InputError, "silo 'a' has tuple; it must return"),
        ([("task.data", "failing")], InputError, "failing() failed: RuntimeError: the disk is on fire"),
        ([("task.data", '"no_such_module:data"')], InputError, "cannot import no_such_module"),
        ([("task.data", "nothing")], InputError, "has no function nothing"),
        ([("task.data", "number")], InputError, "has no function number"),
        ([("task.model", "text")], InputError, "returned str; it must return a torch.nn.Module"),
        ([("task.model", "Hard")], InputError, "the model is not differentiable"),
        ([("task.model", "Rounded")], InputError, "the model is not differentiable"),
        ([("task.model", "frozen")], InputError, "the model has no trainable parameter"),
        ([("task.model", "half")], InputError, "Use model.float()"),
        ([("task.model", "narrow")], InputError, "silo a: model and loss fail on made-up records: RuntimeError"),
        ([("task.model", "batchnorm")], PrivacyRefusal, "BatchNorm1d normalises a record with the statistics"),
        ([("task.model", "noisy")], PrivacyRefusal, "model or loss draw random numbers with aten.rand_like"),
        ([("task.loss", "number_loss")], InputError, "the loss returned float; it must return one value per record"),
        ([("task.loss", "mean_loss")], InputError, "one value per record"),
        ([("policy.lifetime_delta", "1e-6")], PrivacyRefusal, "delta=0.001 (policy: at most 1e-06)"),
        ([("methods.threshold.level", "50")], PrivacyRefusal, "no declared budget is large enough for a single draw"),
        ([("methods.threshold.clip_norm", "1")], InputError, "method threshold needs a level"),
        ([("training.backbone_settings", "{ proximal = 1 }")], InputError, "fedavg has no setting"),
    ],
)
def test_what_cannot_run(tmp_path: Path, changes: list[Change], kind: type[RpdpError], expected: str) -> None:
    method = "threshold" if changes[0][0].startswith("methods") else "rpdp"
    with pytest.raises(kind) as caught:
        ran(tmp_path, *changes, method=method)
    assert expected in str(caught.value)


def test_all_budgets_below_the_floor(tmp_path: Path) -> None:
    changes = write_budgets(tmp_path, {silo: [1e-9] * 40 for silo in "abc"})
    with pytest.raises(PrivacyRefusal, match=r"all 120 budgets are below what .* cost: use fewer rounds"):
        ran(tmp_path, *changes)


def test_records_with_a_smaller_delta_than_the_runs_take_part_at_their_own(tmp_path: Path) -> None:
    changes = write_budgets(tmp_path, {silo: [1.0] * 40 for silo in "abc"})
    for silo in "abc":
        BudgetTable([f"{silo}-{row}" for row in range(40)], [1.0] * 40, delta=[1e-6] * 40).write(
            tmp_path / f"{silo}.csv"
        )
    for view in ran(tmp_path, *changes).silos.values():
        assert (view.plan.q > 0.0).all()
        assert (view.plan.delta > 0.0).all()
        assert (view.plan.delta <= 1e-6).all()


@pytest.mark.parametrize("data", ["with_nan", "one_single", "without_tests"])
def test_data_that_can_run_all_the_same(tmp_path: Path, data: str) -> None:
    result = ran(tmp_path, ("task.data", data))
    assert bool(result.values.isfinite().all())
    assert (result.score is None) == (data == "without_tests")


@pytest.mark.parametrize("account", ["sums", "renyi"])
def test_persons_in_several_silos_are_simulated_with_accounts_that_fit_together(tmp_path: Path, account: str) -> None:
    """Each silo holds (ε/k, δ/k), or books k·ρ: either way a record gets less than alone in one silo."""
    alone = ran(tmp_path, ("privacy.account", f'"{account}"'))
    shared = ran(tmp_path, ("privacy.account", f'"{account}"'), ("policy.silos_per_person", "3"))
    assert (shared.public.account, shared.public.silos_per_person) == (account, 3)
    assert shared.public.lifetime_delta == shared.public.delta == alone.public.delta
    assert alone.public.lifetime_delta is None
    for name, view in shared.silos.items():
        one = alone.silos[name].plan
        assert (view.plan.q < one.q).all()
        if account == "sums":
            assert (view.plan.budget <= one.budget / 3).all()
        for order in np.unique(view.plan.order[view.plan.order > 0]).tolist():
            rows = view.plan.order == order
            alone_here = shared.public.divergence_curve(float(ORDERS[order])).divergence(view.plan.q[rows])
            assert (view.plan.cost[rows] >= 3 * alone_here * (1 - 1e-9)).all()


def test_a_share_of_the_budgets_is_all_that_a_simulation_takes(tmp_path: Path) -> None:
    whole = ran(tmp_path, ("run.study", '"Toy"'), ("run.purpose", '"training"'))
    part = ran(tmp_path, ("privacy.share", "0.25"))
    assert (whole.public.study, whole.public.purpose, part.public.share) == ("Toy", "training", 0.25)
    for name, view in part.silos.items():
        assert (view.plan.cost <= 0.25 * whole.silos[name].plan.budget * (1 + 1e-12)).all()
        assert (view.plan.cost > 0.0).any()
