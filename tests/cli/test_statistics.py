"""`rpdp statistics`: plans, simulations and their words; refusals before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rpdp.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Command

STUDY = """
[table]
file = "patients.csv"
silo = "CLINIC"
record = "PATIENT"
[table.columns]
AGE = { kind = "number", range = [20, 100] }
BP = { kind = "number", range = [80, 240] }
SEX = { kind = "category", levels = ["F", "M"] }
[table.target]
kind = "classification"
column = "OUTCOME"
classes = { well = [0], ill = [1] }
[table.split]
test_share = 0.2
[schedule]
rounds = 2
local_steps = 2
participation = 1.0
[privacy]
delta = 1e-3
max_epsilon = 5.0
clip_norm = 1.0
[budgets]
distribution = "ThreeLevels"
records_per_silo = 1000
[training]
learning_rate = 0.1
[run]
seeds = 1
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    rng = np.random.default_rng(4)
    age, sex, ill = rng.integers(30, 90, 2000), rng.choice(["F", "M"], 2000), rng.integers(0, 2, 2000)
    pressure = 100 + age
    rows = [f"p-{i},{'north' if i % 2 else 'south'},{age[i]},{pressure[i]},{sex[i]},{ill[i]}" for i in range(len(age))]
    (tmp_path / "patients.csv").write_text("\n".join(["PATIENT,CLINIC,AGE,BP,SEX,OUTCOME", *rows]) + "\n")
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def test_a_plan_shows_both_estimators_for_shares_from_1_to_50_percent_and_reads_no_table(
    rpdp: Command, study: Path, tmp_path: Path
) -> None:
    (tmp_path / "patients.csv").unlink()
    found = rpdp("statistics", study, "--columns", "AGE,SEX", "--plan", "--json").json
    assert [choice["share"] for choice in found["everyone"]] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
    widths = [choice["half_widths"]["mean of AGE"] for choice in found["representative"]]
    assert widths == sorted(widths, reverse=True)
    text = rpdp("statistics", study, "--columns", "AGE,SEX", "--plan").out
    assert "Expected by estimator everyone" in text
    assert "Nothing was read or spent" in " ".join(text.split())


def test_a_simulation_gives_numbers_with_intervals(rpdp: Command, study: Path, tmp_path: Path) -> None:
    found = rpdp("statistics", study, "-c", "AGE,SEX", "--share", 0.5, "--seed", 3, "--json").json
    mean = found["estimates"][0]
    assert mean["low"] <= 59.5 <= mean["high"]
    assert found["covered"] is False
    assert found["by_silo"] == {}
    figure = tmp_path / "figure.html"
    shown = rpdp("statistics", study, "-c", "AGE,SEX", "--share", 0.5, "--seed", 3, "--figure", figure)
    assert shown.code == 0
    assert "mean of AGE" in shown.out
    assert "##" in shown.out
    assert "values do not depend on budgets" in shown.out
    assert "protects nobody" in shown.out
    assert figure.stat().st_size > 10_000
    again = rpdp("statistics", study, "-c", "AGE", "--seed", 3, "--figure", figure)
    assert again.code == 2
    assert "is not overwritten" in again.err


def test_noise_comes_from_what_is_declared_and_not_from_the_tables(rpdp: Command, study: Path) -> None:
    study.write_text(STUDY.replace("records_per_silo = 1000", "records_per_silo = 300"))
    asked = ("statistics", study, "-c", "AGE", "--statistics", "mean", "--share", 0.5, "--json")
    planned = rpdp(*asked, "--plan").json["representative"]
    assert rpdp(*asked).json["noise_multiplier"] == planned[0]["noise_multiplier"]


def test_groups_are_levels_or_silos(rpdp: Command, study: Path) -> None:
    by_sex = rpdp("statistics", study, "-c", "AGE,OUTCOME", "--by", "SEX", "--seed", 3, "--json").json
    assert "mean of AGE, SEX F" in [each["name"] for each in by_sex["estimates"]]
    assert "SEX M, OUTCOME ill" in [each["name"] for each in by_sex["estimates"]]
    by_silo = rpdp("statistics", study, "-c", "AGE", "--by", "CLINIC", "--statistics", "mean", "--json").json
    assert set(by_silo["by_silo"]) == {"north", "south"}
    assert "Of each silo" in rpdp("statistics", study, "-c", "AGE", "--by", "silo", "--statistics", "mean").out


def test_everyone_counts(rpdp: Command, study: Path) -> None:
    options = ("--statistics", "count,correlation,quantiles", "--estimator", "everyone", "--floor", 1)
    found = rpdp("statistics", study, "-c", "AGE,BP", *options, "--share", 1, "--json").json["estimates"]
    assert found[0]["name"] == "records"
    assert found[0]["low"] <= 600 <= found[0]["high"]
    assert found[-1]["name"] == "correlation of AGE and BP"
    assert found[-1]["low"] <= 0.99999


def test_the_check_asks_twice(rpdp: Command, study: Path) -> None:
    found = rpdp("statistics", study, "-c", "AGE", "--statistics", "mean", "--check", "--share", 1, "--json").json
    assert [each["is_flagged"] for each in found["check"]] == [False]
    assert "check: mean of AGE" in rpdp("statistics", study, "-c", "AGE", "--statistics", "mean", "--check").out


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("-c", "AEG"), 2, "did you mean AGE"),
        (("-c", "AGE,AGE"), 2, "must be different names"),
        (("-c", "AGE", "--statistics", "median"), 2, "must be some of"),
        (("-c", "AGE", "--by", "BP"), 2, "is a number"),
        (("-c", "AGE", "--floor", "1"), 2, "weights leave nobody out"),
        (("-c", "AGE", "--share", "2"), 2, "--share=2"),
        (("-c", "AGE", "--figure", "a.png"), 2, "must end in .html"),
        (("-c", "AGE", "--run", "stats-1"), 3, "it lacks"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    rpdp: Command, study: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    found = rpdp("statistics", study, *options)
    assert (found.code, found.out) == (code, "")
    assert message in found.err


def make_real(rpdp: Command, study: Path, text: str) -> None:
    """Ledgers and limits of both clinics, and a study file for real runs."""
    folder = study.parent
    lines = (folder / "patients.csv").read_text().splitlines()[1:]
    for silo in ("north", "south"):
        ids = [line.split(",")[0] for line in lines if f",{silo}," in line]
        budgets = folder / f"{silo}.csv"
        budgets.write_text("record,epsilon\n" + "".join(f"{each},1\n" for each in ids))
        assert rpdp("ledger", "create", f"{silo}.db", "--budgets", budgets, "--lifetime-delta", 1e-3).code == 0
        limits = {"max_rounds": 5, "max_local_steps": 5, "max_participation": 1.0, "max_clip_norm": 1.0}
        limits |= {"min_noise_multiplier": 0.5, "lifetime_delta": 1e-3, "max_runs": 3, "max_share_per_run": 0.5}
        policy = folder / f"{silo}.db.policy.toml"
        policy.write_text("".join(f"{name} = {value}\n" for name, value in limits.items()))
        policy.chmod(0o644)
    real = text.replace("seeds = 1", 'id = "train-1"')
    real = real.replace('distribution = "', 'files = { north = "north.csv", south = "south.csv" }\ndeclared = "')
    study.write_text(real + '[ledgers]\nnorth = "north.db"\nsouth = "south.db"\n')


def test_one_study_has_statistics_training_and_evaluation(rpdp: Command, study: Path) -> None:
    """With private evaluation the ledgers hold training and held-out records; statistics speak of both."""
    text = STUDY.replace("delta = 1e-3", "delta = 1e-4\nshare = 0.3")
    make_real(rpdp, study, text + '[evaluation]\nshare = 0.5\nrecords = 200\nwidest = 0.9\nmetrics = ["accuracy"]\n')
    asked = ("statistics", study, "-c", "AGE", "--statistics", "mean", "--share", 0.2)
    first = rpdp(*asked, "--run", "stats-1", "--json").json
    assert first["estimates"][0]["low"] <= 59.5 <= first["estimates"][0]["high"]
    assert rpdp("train", study, "--even-if-noise").code == 0
    for silo in ("north", "south"):
        with Ledger.read(study.parent / f"{silo}.db") as ledger:
            assert ledger.verify().is_good
            assert [one.purpose for one in ledger.overview().runs] == ["statistics", "training", "evaluation"]


def test_a_real_run_is_charged_to_the_ledgers_and_shows_the_same_numbers_again(rpdp: Command, study: Path) -> None:
    make_real(rpdp, study, STUDY.replace("[table.split]\ntest_share = 0.2\n", ""))
    asked = ("statistics", study, "-c", "AGE", "--statistics", "mean", "--run", "stats-1")
    first = rpdp(*asked, "--json").json
    assert first["covered"] is True
    assert first["estimates"][0]["low"] <= 59.5 <= first["estimates"][0]["high"]
    assert rpdp(*asked).code == 2
    assert rpdp("statistics", study, "-c", "AGE", "--seed", 1).code == 3  # seeded noise, and real records
    assert rpdp(*asked, "--resume", "--json").json["estimates"] == first["estimates"]
    assert "good" in rpdp("ledger", "verify", "north.db").out
    assert "statistics" in rpdp("ledger", "show", "north.db").out
