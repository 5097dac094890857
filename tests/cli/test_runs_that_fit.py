"""How many runs do budgets pay for? `rpdp plan --share` and `rpdp frontier --share`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpdp import BudgetTable, PublicPlan, Schedule, runs_that_fit
from rpdp.figures import Line
from rpdp.report import runs_figure

if TYPE_CHECKING:
    from rpdp.budgets import AccountKind
    from tests.cli.conftest import Command

RUN = ["-T", "15", "-t", "50", "--participation", "0.5", "-d", "1e-4"]
DECLARED = ["--distribution", "ThreeLevels", "-n", "400", "--set", "levels=1,5,10"]
SIGMA = "10.748"


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("account", ["renyi", "sums"])
def test_the_plan_of_one_of_several_runs(rpdp: Command, account: AccountKind) -> None:
    chosen = ["-s", SIGMA, "--share", "0.05", "--account", account]
    told = rpdp("plan", *RUN, *DECLARED, *chosen, "--json").json
    runs, q = told["runs"], {"renyi": (0.035, 0.143, 0.252), "sums": (0.0085, 0.037, 0.069)}[account]
    assert (runs["share"], runs["account"], runs["lifetime_delta"]) == (0.05, account, 1e-4)
    assert (runs["runs_in_full"], runs["runs_above_floor"]) == (20, 21 if account == "renyi" else 20)
    assert [group["mean_q"] for group in runs["groups"]] == pytest.approx(q, rel=0.02)
    assert [group["mean_q"] for group in told["silo"]["groups"]] == pytest.approx(q, rel=0.02)  # the plan itself
    assert runs["signal_to_noise"] == pytest.approx(told["silo"]["signal_to_noise"])
    shown = flat(rpdp("plan", *RUN, *DECLARED, *chosen).out)
    assert f"0.05 of every lifetime budget a run, {account} accounts, lifetime δ = 0.0001" in shown
    assert "all together: 20 runs in full with signal to noise Σq/σ" in shown


def test_a_plan_without_a_share_takes_everything_and_counts_nothing(rpdp: Command) -> None:
    told = rpdp("plan", *RUN, *DECLARED, "-s", SIGMA, "--json").json
    assert told["runs"] is None
    assert "pay for" not in rpdp("plan", *RUN, *DECLARED, "-s", SIGMA).out


def test_the_files_of_a_plan_with_a_share(rpdp: Command) -> None:
    out = ["--out", "made", "-s", SIGMA, "--clip-norm", "1", "--normaliser", "64"]
    told = rpdp("plan", *RUN, *DECLARED, *out, "--share", "0.1", "--lifetime-delta", "1e-3", "--json").json
    assert set(told["files"]) == {"public_plan", "silo_plan", "figure", "figure_of_runs"}
    assert Path("made/runs.html").is_file()
    assert PublicPlan.read("made/public-plan.json").share == 0.1  # the plan asks the silos for no more
    assert rpdp("plan", *RUN, *DECLARED, *out, "--force", "--json").json["files"].keys() == {
        "public_plan",
        "silo_plan",
        "figure",
    }


def test_shares_compared(rpdp: Command) -> None:
    chosen = ["--noise-multipliers", SIGMA, "--share", "0.01,0.2,0.05"]
    told = rpdp("frontier", *RUN, *DECLARED, *chosen, "--figure", "runs.html", "--json").json
    assert set(told) == {"shares", "covered", "note", "figure"}
    assert [(one["share"], one["runs_in_full"]) for one in told["shares"]] == [(0.2, 5), (0.05, 20), (0.01, 100)]
    signals = [one["signal_to_noise"] for one in told["shares"]]
    assert signals == sorted(signals, reverse=True)
    assert Path("runs.html").is_file()
    shown = flat(rpdp("frontier", *RUN, *DECLARED, *chosen).out)
    assert "Runs against signal (renyi accounts, lifetime δ = 0.0001)" in shown
    assert "0.2 5 6" in shown
    assert "q at ε = 10" in shown


def test_noise_compared_at_one_share(rpdp: Command) -> None:
    chosen = ["--noise-multipliers", "2,8", "--share", "0.05"]
    told = rpdp("frontier", *RUN, *DECLARED, *chosen, "--json").json
    assert [point["runs_in_full"] for point in told["points"]] == [20, 20]
    whole = rpdp("frontier", *RUN, *DECLARED, *chosen[:2], "--json").json
    assert "runs_in_full" not in whole["points"][0]
    for part, all_at_once in zip(told["points"], whole["points"], strict=True):
        assert part["signal_to_noise"] < all_at_once["signal_to_noise"]
    shown = rpdp("frontier", *RUN, *DECLARED, *chosen)
    assert [line.split()[-1] for line in shown.out.splitlines() if line[:2] in ("2 ", "8 ")] == ["20", "20"]


def test_real_budgets_are_not_covered(rpdp: Command) -> None:
    BudgetTable(["a", "b"], [1.0, 5.0]).write("budgets.csv")
    told = rpdp("frontier", *RUN, "-b", "budgets.csv", "--noise-multipliers", "2", "--share", "0.1,0.2", "--json").json
    assert told["covered"] is False
    assert "the promise does not cover" in told["note"]


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("frontier", ["--share", "0.1,0.2"], "several shares are compared at one σ"),
        ("frontier", ["--share", "2"], "--share=2.0 must be above 0 and at most 1"),
        ("frontier", ["--share", "some"], "--share 'some' must be numbers"),
        ("frontier", ["--account", "sums"], "--account only goes with --share"),
        ("frontier", ["--lifetime-delta", "1e-3"], "--lifetime-delta only goes with --share"),
        ("frontier", ["--share", "0.1", "--account", "reny"], "did you mean 'renyi'?"),
        ("plan", ["-s", "2", "--account", "sums"], "--account only goes with --share"),
        ("plan", ["-s", "2", "--share", "0"], "share=0.0 must be above 0"),
        ("plan", ["-s", "2", "--share", "0.1", "--estimator", "scf"], "plans for sum accounts only"),
    ],
)
def test_bad_input(rpdp: Command, command: str, arguments: list[str], message: str) -> None:
    refused = rpdp(command, *RUN, *DECLARED, *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert message in flat(refused.err)


def test_the_figure_shows_the_signal_of_every_run() -> None:
    """Run by run, down to the first run that fits for nobody."""
    public = PublicPlan(
        Schedule(15, 50, participation=0.5),
        noise_multiplier=10.748,
        delta=1e-4,
        clip_norm=1.0,
        normaliser=64.0,
        weights=1.0,
    )
    budgets = BudgetTable(["a", "b", "c"], [1.0, 5.0, 60.0])
    found = runs_that_fit(public, budgets, share=0.2)
    [card] = runs_figure({"0.2": found}).cards
    [trace] = card.figure.layers
    assert isinstance(trace, Line)
    assert trace.x[0] == 1
    assert trace.y[-1] == 0.0
    for run, signal in zip(trace.x, trace.y, strict=True):
        assert signal == found.signal_to_noise(run)
