"""Nobody is surprised: what `rpdp doctor` and `rpdp train` say of a fresh, a half-used and a used-up ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp.studies import read_result
from tests.studies.steward import SILOS

if TYPE_CHECKING:
    from tests.studies.steward import Steward
    from tests.studies.toy import Change

HALF: Change = ("policy.max_share_per_run", "0.5")
WHOLE: Change = ("policy.max_share_per_run", "1.0")
NOISY: Change = ("privacy.noise_multiplier", "6")
MORE_RUNS: Change = ("policy.max_runs", "9")


def study(steward: Steward, run: str, *changes: Change) -> Path:
    return steward.writes(NOISY, MORE_RUNS, HALF, ("run.id", f'"{run}"'), *changes, name=f"{run}.toml")


def uses(steward: Steward, *runs: str) -> None:
    """Make ledgers, and let runs take half of everybody's lifetime budget each."""
    steward.creates("--account", "sums", budgets=(1.0, 2.0))
    for run in runs:
        assert steward.types("train", study(steward, run)) == 0, steward.err


FRESH = "silo a: 40 of 40 records can take part in full, 0 reduced, 0 not at all"
USED = "silo a: 0 of 40 records can take part in full, 0 reduced, 40 not at all (40 used up by earlier runs)"
FITS = (
    "runs like this one that fit, this one included: {} in full, {} above the floor of the signal; the policy admits {}"
)


def test_a_fresh_ledger(steward: Steward) -> None:
    uses(steward)
    assert steward.types("doctor", study(steward, "spring")) == 0, steward.out
    assert f"ok ledger: {FRESH}" in steward.out
    assert "budgets were examined as the ledgers have them" in steward.out
    assert FITS.format(2, 2, "9 more runs") in steward.out
    said = steward.out
    assert steward.types("train", "spring.toml") == 0
    assert FRESH in steward.err
    signal = said.partition("silo a: signal to noise")[2].partition(" ok ")[0]
    assert signal in steward.err  # the same words


def test_a_half_used_ledger(steward: Steward) -> None:
    uses(steward, "spring")
    assert steward.types("doctor", study(steward, "summer")) == 0
    assert FRESH in steward.out
    assert FITS.format(1, 1, "8 more runs") in steward.out
    assert steward.types("doctor", study(steward, "bigger", WHOLE)) == 0
    assert "warning ledger: silo a: 0 of 40 records can take part in full, 40 reduced (40 used up" in steward.out
    assert "or nothing else: without a steward's key" in steward.out  # what would help, as in train
    assert steward.types("train", study(steward, "summer")) == 0
    assert FITS.format(1, 1, "8 more runs") in steward.err


def test_a_used_up_ledger_is_refused_until_it_is_asked_for_by_name(steward: Steward) -> None:
    uses(steward, "spring", "summer")
    booked = [steward.runs(silo) for silo in SILOS]
    path = study(steward, "autumn")
    assert steward.types("doctor", path) == 3
    assert f"warning ledger: {USED}" in steward.out
    assert "0 in the whole run, below the floor of 1: the run would be noise" in steward.out
    assert "problem ledger: this run would be noise: its signal over all silos is 0 (a: 0, b: 0)" in steward.out
    assert "This run cannot start: 1 problem." in steward.out
    assert steward.types("train", path) == 3
    assert USED in steward.err
    assert "0 of 80 records can take part. It would spend what is left and learn next to nothing" in steward.err
    assert "run it all the same with --even-if-noise" in steward.err
    assert steward.types("train", path, "--json") == 3
    assert "this run would be noise" in json.loads(steward.out)["error"]
    assert [steward.runs(silo) for silo in SILOS] == booked  # nothing was held, and nobody has heard of it
    assert not Path("study/autumn").exists()
    assert steward.types("train", path, "--even-if-noise") == 0, steward.err
    assert USED in steward.err
    assert [steward.runs(silo)[-1][0] for silo in SILOS] == ["autumn"] * 2


def test_a_run_that_was_admitted_is_not_stopped_by_its_own_booking(steward: Steward) -> None:
    uses(steward)
    assert steward.types("train", study(steward, "spring", WHOLE)) == 0
    assert steward.types("train", "spring.toml", "--resume") == 0
    assert "can take part" not in steward.err


def test_doctor_of_a_run_that_is_in_the_ledger(steward: Steward) -> None:
    uses(steward, "spring")
    assert steward.types("doctor", "spring.toml") == 2
    assert "problem ledger: run.id='spring' is already in the ledger of a, b" in steward.out


def test_doctor_counts_the_runs_of_the_policy(steward: Steward) -> None:
    uses(steward, "spring")
    assert steward.types("doctor", study(steward, "summer", ("policy.max_runs", "1"))) == 3
    assert "problem ledger: silo a: the policy admits no more runs (max_runs)" in steward.out
    assert "the policy admits 0 more runs" in steward.out


def test_doctor_without_ledgers_says_that_they_are_missing(steward: Steward) -> None:
    steward.creates()
    path = steward.writes(("ledgers.b", '"b/none.db"'))
    assert steward.types("doctor", path) == 3
    assert "problem ledger: ledgers.b: there is no ledger" in steward.out
    assert "b/none.db. Create one with `rpdp ledger create" in steward.out
    assert "budgets were examined as stated" in steward.out


def test_machines_get_the_outlook(steward: Steward) -> None:
    uses(steward)
    assert steward.types("train", study(steward, "spring"), "--json") == 0
    told = json.loads(steward.out)["steward"]["standings"]
    assert [(one["silo"], one["records"], one["in_full"], one["is_noise"]) for one in told] == [
        ("a", 40, 40, False),
        ("b", 40, 40, False),
    ]
    assert told[0]["runs_in_full"] == told[0]["runs_above_floor"] == 2
    assert told[0]["runs_allowed"] == 9
    assert "standings" not in json.loads(steward.out)["public"]


def test_simulations_have_no_floor(steward: Steward) -> None:
    path = steward.writes(("ledgers", None), ("run.seeds", "1"), ("run.id", None))
    assert steward.types("train", path, "--seed", "1", "--even-if-noise") == 2
    assert "--even-if-noise is about what earlier runs left; a simulation has no earlier runs" in steward.err


def test_the_signal_is_that_of_the_plan_that_is_held(steward: Steward) -> None:
    uses(steward)
    assert steward.types("train", study(steward, "spring"), "--json") == 0
    told = json.loads(steward.out)["steward"]["standings"]
    found = read_result(Path("study/spring"))
    for one in told:
        assert one["signal_to_noise"] == pytest.approx(found.silos[one["silo"]].plan.signal_to_noise, rel=1e-12)


def test_the_silos_report_says_what_the_ledgers_had_left(steward: Steward) -> None:
    """The same words, also when it is rebuilt; the edition to share has none of them."""
    uses(steward, "spring")
    assert steward.types("train", study(steward, "bigger", WHOLE)) == 0
    said = "0 of 40 records can take part in full, 40 reduced (40 used up by earlier runs), 0 not at all"
    home = Path("study/bigger")
    for rebuilt in (False, True):
        if rebuilt:
            assert steward.types("report", home) == 0, steward.err
        page = (home / "report.html").read_text()
        for silo in SILOS:
            assert f"<li>silo {silo}: {said}</li>" in page
            assert f"<li>silo {silo}: runs like this one that fit, this one included: 0 in full, 1 above" in page
    shared = (home / "report-share.html").read_text()
    assert "can take part" not in shared
    assert "What the ledgers had left" not in shared
    assert (home / "silo" / "a" / "outlook.json").stat().st_mode & 0o077 == 0
    for path in home.iterdir():
        assert path.is_dir() or path.name == "report.html" or "can take part" not in path.read_text(errors="ignore")


def test_a_run_that_goes_on_keeps_what_it_found_at_first(steward: Steward) -> None:
    uses(steward)
    assert steward.types("train", study(steward, "spring")) == 0
    found = Path("study/spring/silo/a/outlook.json").read_text()
    (Path("study/spring") / "result.json").unlink()
    assert steward.types("train", "spring.toml", "--resume") == 0, steward.err
    assert Path("study/spring/silo/a/outlook.json").read_text() == found
