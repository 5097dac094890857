from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp import PublicPlan, SiloPlan, errors
from rpdp.planning import TUNED_ON_BUDGETS

if TYPE_CHECKING:
    from tests.cli.conftest import Command

RUN = ["-T", "15", "-t", "50", "-d", "1e-4", "--participations", "8", "--accountant", "rdp"]
DECLARED = ["--distribution", "ThreeLevels", "-n", "400"]
SIGMAS = ["--noise-multipliers", "8,2,4,1,2"]
POLICY = ["--max-epsilon", "10"]
OUT = ["--normaliser", "64", "--clip-norm", "2"]


def flat(text: str) -> str:
    return " ".join(text.split())


def test_plan_of_a_file(rpdp: Command, budgets: Path) -> None:
    shown = rpdp("plan", *RUN, *POLICY, "-b", budgets, "--explain", "r-000")
    assert shown.code == 0
    assert "cost at q = 1: ε = 10 (rdp)" in flat(shown.out)
    groups = [line.split() for line in shown.out.splitlines() if line.endswith(" 0")]
    assert [(group[0], group[1]) for group in groups] == [("0.1", "70"), ("1", "20"), ("5", "10")]
    assert "Record r-000 allows ε = 0.1." in shown.out
    assert "not covered" not in shown.out


def test_plan_as_json(rpdp: Command, budgets: Path) -> None:
    plan = rpdp("plan", *RUN, *POLICY, "-b", budgets, "--json").json
    assert set(plan) == {
        "schedule",
        "noise_multiplier",
        "delta",
        "accountant",
        "largest_cost",
        "clip_norm",
        "normaliser",
        "weights",
        "fingerprint",
        "notes",
        "remarks",
        "silo",
        "runs",
        "explanation",
        "files",
    }
    assert plan["largest_cost"] <= 10.0
    assert plan["notes"] == []
    assert plan["files"] == {}
    assert plan["silo"]["records"] == 100
    assert plan["silo"]["largest_share_of_budget_used"] <= 1.0
    assert [group["records"] for group in plan["silo"]["groups"]] == [70, 20, 10]


def test_written_plans_can_be_read_again(rpdp: Command, budgets: Path) -> None:
    plan = rpdp("plan", *RUN, *POLICY, "-b", budgets, "-o", "new/plans", *OUT, "--json").json
    assert plan["files"] == {
        "public_plan": "new/plans/public-plan.json",
        "silo_plan": "new/plans/silo-plan.parquet",
        "figure": "new/plans/plan.html",
    }
    assert all(Path(file).is_file() for file in plan["files"].values())
    assert PublicPlan.read("new/plans/public-plan.json").fingerprint == plan["fingerprint"]
    assert SiloPlan.read("new/plans/silo-plan.parquet").expected_batch == plan["silo"]["expected_batch"]


def test_refuses_overwriting(rpdp: Command, budgets: Path) -> None:
    arguments = ["plan", *RUN, *POLICY, "-b", budgets, "-o", "plans", *OUT]
    assert rpdp(*arguments).code == 0
    before = Path("plans/silo-plan.parquet").stat().st_mtime_ns
    refused = rpdp(*arguments)
    assert refused.code == 2
    assert "plans/public-plan.json exists and is not overwritten; choose another name, or add --force" in refused.err
    assert Path("plans/silo-plan.parquet").stat().st_mtime_ns == before
    assert rpdp(*arguments, "--force").code == 0


def test_out_must_not_be_a_file(rpdp: Command, budgets: Path) -> None:
    refused = rpdp("plan", *RUN, *POLICY, "-b", budgets, "-o", budgets, *OUT)
    assert refused.code == 2
    assert refused.err.startswith("error: ")
    assert "exists" in refused.err.lower()


def test_the_old_option_for_the_frontier_names_the_command(rpdp: Command) -> None:
    refused = rpdp("plan", *DECLARED, "--frontier")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "error: --frontier is now the command rpdp frontier; see rpdp frontier --help\n"
    assert "--frontier" not in rpdp("plan", "--help").out


@pytest.mark.parametrize("declared", [DECLARED, []], ids=["declared", "real budgets only"])
def test_at_knee(rpdp: Command, budgets: Path, declared: list[str]) -> None:
    """A σ tuned on real budgets leaves its note in the plan, under the fingerprint; a declared source leaves none."""
    out = ["-o", "out", *OUT]
    plan = rpdp("plan", *RUN, "-b", budgets, *declared, *SIGMAS, "--at-knee", *out, "--json").json
    assert plan["noise_multiplier"] == 2.0
    assert plan["silo"]["records"] == 100
    expected = () if declared else (TUNED_ON_BUDGETS,)
    assert PublicPlan.read("out/public-plan.json").notes == tuple(plan["notes"]) == expected
    shown = rpdp("plan", *RUN, "-b", budgets, *declared, *SIGMAS, "--at-knee").out
    assert (TUNED_ON_BUDGETS in flat(shown)) == (not declared)


def test_who_sits_out_is_told(rpdp: Command) -> None:
    Path("b.csv").write_text("record,epsilon,delta\na,1,1e-3\nb,1e-9,1e-99\n")
    shown = rpdp("plan", *RUN, *POLICY, "-b", "b.csv", "--explain", "b")
    assert "1 record sits out" in flat(shown.out)
    assert "Record b allows ε = 1e-09. It sits this run out" in flat(shown.out)


@pytest.mark.parametrize("noise", [POLICY, ["-s", "9"]], ids=["policy", "σ"])
def test_a_distribution_that_would_do_nothing_is_refused(rpdp: Command, budgets: Path, noise: list[str]) -> None:
    refused = rpdp("plan", *RUN, *noise, "-b", budgets, *DECLARED)
    assert refused.code == 2
    assert "--distribution beside --budgets only serves to choose σ" in refused.err


def test_a_written_plan_states_clip_norm_and_weights(rpdp: Command, budgets: Path) -> None:
    shown = rpdp("plan", *RUN, *POLICY, "-b", budgets, "-o", "plans", *OUT)
    assert "The public plan states L = 2, B = 64 and equal weights for all silos." in flat(shown.out)
    plan = PublicPlan.read("plans/public-plan.json")
    assert (plan.clip_norm, plan.normaliser, plan.weights) == (2.0, 64.0, 1.0)


def test_it_is_said_which_delta_of_the_records_counts(rpdp: Command, budgets: Path) -> None:
    def remarks(*arguments: object) -> str:
        told = " ".join(rpdp("plan", *RUN, *POLICY, *arguments, "--json").json["remarks"])
        assert told in flat(rpdp("plan", *RUN, *POLICY, *arguments).out)
        return told

    Path("own.csv").write_text("record,epsilon,delta\na,1,1e-3\n")
    assert remarks("-b", budgets).startswith("No lifetime δ was checked")
    assert remarks("-b", budgets, "--lifetime-delta", "1e-3") == ""
    assert remarks("-b", "own.csv") == ""
    assert "it counts, and --lifetime-delta does not" in remarks("-b", "own.csv", "--lifetime-delta", "1e-9")
    assert remarks(*DECLARED) == ""


def test_scf_tells_what_it_would_overspend(rpdp: Command, budgets: Path) -> None:
    shown = rpdp("plan", *RUN, "-s", "10", "-b", budgets, "--estimator", "scf")
    assert "scf: R² = 0.999" in shown.out
    assert "times a budget, so 80 records drop out early" in flat(shown.out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*POLICY], "give --budgets FILE, or --distribution NAME with --records N, or both"),
        ([*DECLARED], "say in one way where σ comes from: --max-epsilon"),
        ([*DECLARED, *POLICY, "--at-knee"], "say in one way where σ comes from"),
        ([*DECLARED, *POLICY, "-s", "3"], "say in one way where σ comes from"),
        ([*DECLARED, *POLICY, *SIGMAS], "--noise-multipliers only goes with --at-knee"),
        ([*DECLARED, *POLICY, "-o", "out"], "which needs --normaliser B"),
        ([*DECLARED, *POLICY, "-o", "out", "--normaliser", "64"], "which needs --clip-norm L"),
        ([*DECLARED, *POLICY, "--explain", "nobody"], "no record 'nobody' in this plan of 400 records"),
        ([*DECLARED, *POLICY, "--estimator", "guess"], "estimator='guess' must be one of certified, scf"),
        ([*DECLARED, *POLICY, "--accountant", "moments"], "--accountant moments must be one of pld, rdp"),
        ([*DECLARED, *POLICY, "--lifetime-delta", "1"], "lifetime_delta=1.0 must lie strictly between 0 and 1"),
        ([*DECLARED, *POLICY, "--clip-norm", "-1"], "clip_norm=-1.0 must be positive"),
        ([*DECLARED, "--max-epsilon", "-1"], "epsilon=-1.0 must be positive"),
        ([*DECLARED, "--at-knee", "--noise-multipliers", "1,zwei"], "--noise-multipliers '1,zwei' must be numbers"),
        ([*DECLARED, "--at-knee", "--noise-multipliers", "1,-2"], "noise_multiplier=-2.0 must be positive"),
        ([*POLICY, "-b", "nowhere.csv"], "nowhere.csv: no such file"),
        ([*POLICY, "-b", "nowhere.csv", "-n", "5", "--set", "a=1"], "--records and --set only go with --distribution"),
    ],
)
def test_bad_input(rpdp: Command, tmp_path: Path, arguments: list[str], message: str) -> None:
    refused = rpdp("plan", *RUN, *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: ")
    assert message in refused.err
    assert rpdp("plan", *RUN, *arguments, "--json").json["error"] == refused.err[len("error: ") : -1]
    assert list(tmp_path.iterdir()) == []


def test_refused_for_privacy_is_exit_code_3(rpdp: Command, budgets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_the_promise(*_: object) -> None:
        raise errors.PrivacyRefusal("no plan was made")

    monkeypatch.setattr(SiloPlan, "_check_promise", break_the_promise)
    refused = rpdp("plan", *RUN, *POLICY, "-b", budgets)
    assert (refused.code, refused.out, refused.err) == (3, "", "error: no plan was made\n")
    assert rpdp("plan", *RUN, *POLICY, "-b", budgets, "--json").json == {
        "error": "no plan was made",
        "kind": "PrivacyRefusal",
        "exit_code": 3,
    }
