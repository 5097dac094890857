"""`rpdp tune`: every trial is booked in full, all of them within one share, and released values alone choose."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from rpdp.cli.output import INTERRUPTED
from rpdp.errors import InputError
from rpdp.federation import release_sums
from rpdp.ledger import Ledger, MemoryAccount
from rpdp.studies import private_evaluation, read_result
from rpdp.studies.private_tuning import read_tuning, scores_of
from rpdp.studies.run_directory import read_model
from rpdp.studies.study_file import StudyFile
from rpdp.studies.toml_text import toml_text
from rpdp.studies.tuning_plan import trials_of
from tests.studies.steward import SILOS
from tests.studies.test_private_evaluation import PRIVATE, creates_with_test_records
from tests.studies.toy import write_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from rpdp.federation.released_sums import ReleasedSums
    from rpdp.planning import SiloPlan
    from tests.studies.steward import Steward
    from tests.studies.toy import Change

SHARE = 0.12
"""So small that every trial takes all of its part; at σ = 2 no record can spend more than ε = 1.3 on one."""

NAMES = ("slow", "fast", "short")
CANDIDATES = """[
  { name = "slow", learning_rate = 0.02 }, { name = "fast", learning_rate = 1.0, clip_norm = 0.5 },
  { name = "short", rounds = 2, noise_multiplier = 3.0 },
]""".replace("\n", "")
TUNED: list[Change] = [
    *PRIVATE,
    ("evaluation.metrics", '["accuracy"]'),
    ("evaluation.widest", "0.9"),
    ("privacy.share", str(SHARE)),
    ("budgets.overrides", "{levels = [10.0, 20.0, 50.0]}"),
    ("policy.max_runs", "4"),
    ("tuning.candidates", CANDIDATES),
]
SIMULATED: list[Change] = [change for change in TUNED if not change[0].startswith("policy.")]
RUNS = [("spring-slow", 3), ("spring-fast", 3), ("spring-short", 2), ("spring-evaluation", 3)]


def plans_of(steward: Steward, silo: str) -> dict[str, SiloPlan]:
    """The booked plans of all runs of a silo with 40 records for training and 20 for testing."""
    ids = pa.chunked_array([[f"{silo}-{row}" for row in range(60)]])
    with Ledger.read(steward.home / silo / "ledger.db") as ledger:
        return {status.run: ledger.resume(status.run, ids) for status in ledger.status().runs}


def simulated(
    steward: Steward, out: str, *changes: Change, seed: int = 1, more: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The result of a simulated tuning."""
    file = write_run(steward.home, *SIMULATED, *changes)
    assert steward.types("tune", file, "--seed", seed, "--out", out, *more) == 0, steward.err
    return read_tuning(out)


def test_every_trial_is_booked_and_all_of_them_stay_within_the_share(steward: Steward) -> None:
    creates_with_test_records(steward, "--account", "sums")
    assert steward.types("tune", steward.writes(*TUNED)) == 0, steward.err
    assert [steward.runs(silo) for silo in SILOS] == [RUNS] * 2
    for silo in SILOS:
        plans = plans_of(steward, silo)
        assert [plan.public.purpose for plan in plans.values()] == ["training"] * 3 + ["evaluation"]
        trials = sum(plans[name].cost for name, _ in RUNS[:3])
        assert isinstance(trials, np.ndarray)
        evaluation = plans["spring-evaluation"].cost
        # The share is the limit for all trials together, as it is for one run; 20 is everybody's lifetime budget.
        assert (trials <= SHARE * 20.0 * (1 + 1e-12)).all()
        assert (trials[:40] > 0.9 * SHARE * 20.0).all(), "planned to the limit, or the test above says nothing"
        assert (evaluation[40:] > 0.0).all()
        assert (evaluation <= 0.5 * 20.0 * (1 + 1e-12)).all()
        assert (trials[40:] == 0.0).all()
        assert (evaluation[:40] == 0.0).all()
    facts = read_tuning("study/tune-spring")
    chosen = max(scores_of(facts).values(), key=lambda one: one["value"])
    assert scores_of(facts)[facts["chosen"]] == chosen
    assert [trial["run"] for trial in facts["trials"]] == [run for run, _ in RUNS[:3]]
    home = Path("study/tune-spring")
    model = read_model(home / "model.safetensors")
    assert torch.equal(model, read_result(home / "trials" / facts["chosen"]).values)
    assert "The models that were compared" in (home / "trials" / facts["chosen"] / "report-share.html").read_text()
    assert f"chosen: {facts['chosen']}" in steward.out


def test_run_names_a_real_run_of_a_file_with_seeds(steward: Steward) -> None:
    creates_with_test_records(steward)
    file = steward.writes(*TUNED, ("run.seeds", "[1]"), ("run.id", None))
    assert steward.types("tune", file, "--run", "autumn") == 0, steward.err
    assert steward.runs("a") == [(run.replace("spring", "autumn"), count) for run, count in RUNS]
    assert steward.types("tune", file, "--run", "autumn", "--resume", "--json") == 0
    assert json.loads(steward.out)["was_finished"]
    assert steward.types("tune", file, "--run", "autumn", "--seed", "1") == 2


def test_a_simulation_has_one_account_for_all_trials(steward: Steward, monkeypatch: pytest.MonkeyPatch) -> None:
    booked = reservations(monkeypatch)
    facts = simulated(steward, "sim")
    assert facts["is_simulation"]
    assert len(booked) == len(SILOS)
    for runs in booked.values():
        assert len(runs) == len(set(runs)) == len(NAMES) + 1
    for silo in SILOS:
        plans = [read_result(Path("sim/trials") / name).silos[silo].plan for name in NAMES]
        spent = np.sum([plan.cost for plan in plans], axis=0)
        assert (spent <= SHARE * plans[0].epsilon * (1 + 1e-12)).all()
        assert (spent[:40] > 0.9 * SHARE * plans[0].epsilon[:40]).any()


def reservations(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[str]]:
    """The runs that accounts in memory reserve from now on, by account."""
    found: dict[int, list[str]] = {}
    accounts: list[MemoryAccount] = []  # kept, so that no id is used twice
    reserve = MemoryAccount.reserve

    def noticed(self: MemoryAccount, run: str, *more: Any) -> None:
        reserve(self, run, *more)
        accounts.append(self)
        found.setdefault(id(self), []).append(run)

    monkeypatch.setattr(MemoryAccount, "reserve", noticed)
    return found


class TestTheChoice:
    def test_depends_on_what_was_released_alone(self, steward: Steward, monkeypatch: pytest.MonkeyPatch) -> None:
        """Other data, other models, the same released sums: the same choice; the sums in another order: another one."""
        kept: list[ReleasedSums] = []
        order = [0, 1, 2]

        def released(*given: Any, **named: Any) -> ReleasedSums:
            kept.append(release_sums(*given, **named))
            rows = {silo: sums[order] for silo, sums in kept[0].by_silo.items()}
            return type(kept[0])(kept[0].run, kept[0].public, rows, kept[0].seed)

        monkeypatch.setattr(private_evaluation, "release_sums", released)
        choices = [simulated(steward, f"sim-{seed}", seed=seed)["chosen"] for seed in (1, 2, 3)]
        assert len(set(choices)) == 1
        firsts = [read_result(f"sim-{seed}/trials/slow").values for seed in (1, 2)]
        assert not torch.equal(*firsts)
        order[:] = [1, 2, 0]
        other = simulated(steward, "other", seed=4)
        assert other["chosen"] == NAMES[order.index(NAMES.index(choices[0]))] != choices[0]
        assert any((one.sums != kept[0].sums).any() for one in kept[1:]), "by themselves, they would differ"

    def test_is_not_made_by_what_simulations_measure(self, steward: Steward) -> None:
        """The true accuracies are in the trials' own results, and sometimes another trial has the best one."""
        differs = []
        for seed in range(1, 7):
            facts = simulated(
                steward, f"sim-{seed}", ("evaluation.share", "0.05"), seed=seed, more=("--even-if-noise",)
            )
            private = {name: one["value"] for name, one in scores_of(facts).items()}
            assert facts["chosen"] == max(private, key=private.__getitem__)
            true = {name: read_result(f"sim-{seed}/trials/{name}").score.values["accuracy"] for name in NAMES}  # type: ignore[union-attr]
            differs.append(true[facts["chosen"]] < max(true.values()))  # type: ignore[type-var, operator]
        assert any(differs)

    def test_trials_do_not_depend_on_their_order(self, steward: Steward) -> None:
        one, other = (
            simulated(steward, out, ("tuning.candidates", text))
            for out, text in (("one", CANDIDATES), ("other", reordered(CANDIDATES)))
        )
        assert [trial["name"] for trial in one["trials"]] != [trial["name"] for trial in other["trials"]]
        for name in NAMES:
            values = [read_result(f"{out}/trials/{name}").values for out in ("one", "other")]
            assert torch.equal(*values)

    def test_trials_have_noise_of_their_own(self, steward: Steward) -> None:
        """Two candidates that are the same recipe: only noise tells them apart."""
        twins = '[{ name = "one" }, { name = "two" }]'
        simulated(steward, "twins", ("tuning.candidates", twins))
        models = [read_result(f"twins/trials/{name}") for name in ("one", "two")]
        assert models[0].public.fingerprint == models[1].public.fingerprint
        assert not torch.equal(models[0].values, models[1].values)


def reordered(candidates: str) -> str:
    listed = tomllib.loads(f"candidates = {candidates}")["candidates"][::-1]
    return toml_text({"candidates": listed}).removeprefix("candidates = ").strip()


class TestInterruptions:
    @pytest.mark.parametrize("at", [("spring-fast", 2), ("spring-evaluation", 2), ("spring-short", 1)])
    def test_a_real_tuning_goes_on_and_charges_nothing_twice(self, steward: Steward, at: tuple[str, int]) -> None:
        creates_with_test_records(steward)
        file = steward.writes(*TUNED)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "store", interrupted_at(at, Ledger.store))
            assert steward.types("tune", file) == INTERRUPTED
        assert "--resume" in steward.out + steward.err
        before = plans_of(steward, "a")
        assert steward.types("tune", file) == 2, "without --resume it must not begin again"
        assert steward.types("tune", file, "--resume") == 0, steward.err
        assert [steward.runs(silo) for silo in SILOS] == [RUNS] * 2
        after = plans_of(steward, "a")
        for run, plan in before.items():
            np.testing.assert_array_equal(plan.cost, after[run].cost)
        trials = sum(after[name].cost for name, _ in RUNS[:3])
        assert isinstance(trials, np.ndarray)
        assert (trials <= SHARE * 20.0 * (1 + 1e-12)).all()
        told = read_tuning("study/tune-spring")
        assert steward.types("tune", file, "--resume") == 0
        assert read_tuning("study/tune-spring") == told

    def test_a_simulation_ends_as_if_it_had_not_been_interrupted(
        self, steward: Steward, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = simulated(steward, "whole")
        file = write_run(steward.home, *SIMULATED)
        calls = 0
        store = MemoryAccount.store

        def interrupted(self: MemoryAccount, *more: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 10:  # two silos, three rounds: in the second trial
                raise KeyboardInterrupt
            store(self, *more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryAccount, "store", interrupted)
            assert steward.types("tune", file, "--seed", 1, "--out", "again") == INTERRUPTED
        booked = reservations(monkeypatch)
        assert steward.types("tune", file, "--seed", 1, "--out", "again", "--resume") == 0, steward.err
        assert all(len(set(runs)) == len(NAMES) + 1 for runs in booked.values()), "finished trials are booked again"
        facts = read_tuning("again")
        assert facts["evaluation"]["models"] == whole["evaluation"]["models"]
        for name in NAMES:
            values = [read_result(f"{out}/trials/{name}").values for out in ("whole", "again")]
            assert torch.equal(*values)


def interrupted_at(at: tuple[str, int], store: Callable[..., None]) -> Callable[..., None]:
    def interrupted(self: Ledger, run: str, number: int, *more: Any) -> None:
        if (run, number) == at:
            raise KeyboardInterrupt
        store(self, run, number, *more)

    return interrupted


class TestThePlan:
    def test_says_what_it_costs_and_tells_and_spends_nothing(self, steward: Steward) -> None:
        creates_with_test_records(steward)
        file = steward.writes(*TUNED)
        assert steward.types("tune", file, "--plan") == 0, steward.err
        assert "at most 12 % of their lifetime budgets: 4 % for each of 3 trials" in steward.out
        assert "held-out records pay at most 50 %, for one evaluation of all 3 models" in steward.out
        assert "for all 3 models together: accuracy ± " in steward.out
        assert steward.types("tune", file, "--plan", "--json") == 0
        told = json.loads(steward.out)
        assert [trial["share"] for trial in told["trials"]] == pytest.approx([0.04] * 3)
        assert all(trial["signal"] < trial["signal_alone"] for trial in told["trials"])
        assert told["against"] == []
        assert [steward.runs(silo) for silo in SILOS] == [[], []]
        assert not Path("study").exists()

    def test_nothing_begins_where_nothing_could_be_told(self, steward: Steward) -> None:
        creates_with_test_records(steward)
        file = steward.writes(*TUNED, ("evaluation.widest", "0.05"))
        assert steward.types("tune", file, "--plan") == 0
        assert "tuning does not pay: no useful interval is possible" in steward.out
        assert steward.types("tune", file) == 3
        assert "tuning does not pay" in steward.err
        assert [steward.runs(silo) for silo in SILOS] == [[], []]

    def test_trials_of_noise_are_named(self, steward: Steward) -> None:
        weak: list[Change] = [("privacy.noise_multiplier", "500.0"), ("privacy.share", "0.001")]
        file = write_run(steward.home, *SIMULATED, *weak)
        assert steward.types("tune", file, "--plan") == 0, steward.err
        assert "trial slow would be noise" in steward.out


@pytest.mark.parametrize(
    ("changes", "code", "expected"),
    [
        ([("tuning.candidates", None), ("tuning.seeds", "[7]")], 2, "there are no [[tuning.candidates]]"),
        ([("tuning.candidates", '[{ name = "one" }]')], 2, "leaves nothing to choose"),
        ([("tuning.candidates", '[{ name = "a" }, { name = "a", rounds = 2 }]')], 2, "are named 'a'"),
        ([("tuning.candidates", "[{ rounds = 2 }, { rounds = 3 }]")], 2, "tuning.candidates.name is missing"),
        ([("tuning.candidates", '[{ name = "a" }, { name = "b", method = "rpdp" }]')], 2, "method is not a setting"),
        (
            [("tuning.candidates", '[{ name = "a" }, { name = "b", max_epsilon = 1.0, noise_multiplier = 1.0 }]')],
            2,
            "b has both max_epsilon",
        ),
        ([("evaluation.share", None), ("evaluation.records", None)], 2, "chooses by private evaluation"),
        ([("ledgers", None)], 3, "A federation that is deployed is not tuned by one command"),
        ([("privacy.share", None)], 2, "the share for all trials together"),
        (
            [("policy.max_runs", "3")],
            3,
            "spring-short, spring-evaluation), and max_runs=3",
        ),
        ([("policy.min_noise_multiplier", "2.5")], 3, "noise_multiplier"),
        ([("policy.max_share_per_run", "0.4")], 3, "evaluation.share=0.5 is above max_share_per_run"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_held(
    steward: Steward, changes: list[Change], code: int, expected: str
) -> None:
    creates_with_test_records(steward)
    assert steward.types("tune", steward.writes(*TUNED, *changes)) == code, steward.out + steward.err
    assert expected in steward.err
    assert [steward.runs(silo) for silo in SILOS] == [[], []]


def test_candidates_change_what_they_name(tmp_path: Path) -> None:
    listed = (
        '[{ name = "a", max_epsilon = 3.0, learning_rate = 0.1 }, '
        '{ name = "b", participations = 1, local_steps = 1, optimiser = "adam" }]'
    )
    changes: list[Change] = [("tuning.candidates", listed), ("methods.rpdp.learning_rate", "9.0")]
    spec = StudyFile.read(write_run(tmp_path, *SIMULATED, ("evaluation.every", "1"), *changes))
    one, other = trials_of(spec, is_real=False)
    assert (one.spec.privacy.max_epsilon, one.spec.privacy.noise_multiplier) == (3.0, None)
    assert one.spec.settings("rpdp").learning_rate == 0.1
    assert other.spec.settings("rpdp").learning_rate == 9.0
    assert other.spec.public_schedule.participations == 1
    assert (other.spec.public_schedule.participation, other.spec.public_schedule.local_steps) == (None, 1)
    assert other.spec.training.optimiser == "adam"
    assert [each.spec.privacy.share for each in (one, other)] == [SHARE / 2] * 2
    assert one.spec.evaluation.every is None
    assert one.spec.tuning is None


def test_values_are_written_as_they_were_read() -> None:
    text = """
        title = "a \\"study\\" – ü\\n"
        list = [1, 2.5, true, "x", { a = 1 }, [1e-7, inf]]
        [columns]
        "PLAIN KEY" = { range = [1991-01-01, 1996-12-31], at = 1996-12-31T10:00:00 }
        AGE = 3
    """
    values = tomllib.loads(text)
    assert tomllib.loads(toml_text(values)) == values
    with pytest.raises(InputError, match="cannot stand in a study file"):
        toml_text({"a": None})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "rpdp-tuning/9"}'])
def test_a_damaged_result_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "tuning.json").write_text(text)
    with pytest.raises(InputError, match="no result of rpdp tune"):
        read_tuning(tmp_path)
