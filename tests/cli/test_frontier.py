from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Command

RUN = ["-T", "15", "-t", "50", "-d", "1e-4", "--participations", "8", "--accountant", "rdp"]
DECLARED = ["--distribution", "ThreeLevels", "-n", "400"]
SIGMAS = ["--noise-multipliers", "8,2,4,1,2"]


def flat(text: str) -> str:
    return " ".join(text.split())


def test_frontier_of_a_declared_distribution(rpdp: Command) -> None:
    frontier = rpdp("frontier", *RUN, *DECLARED, *SIGMAS, "--figure", "out/frontier.html", "--json").json
    assert set(frontier) == {"points", "knee", "covered", "note", "figure"}
    assert [point["noise_multiplier"] for point in frontier["points"]] == [1.0, 2.0, 4.0, 8.0]
    assert frontier["points"][frontier["knee"]]["noise_multiplier"] == 2.0
    assert (frontier["covered"], frontier["note"]) == (True, None)
    assert Path(frontier["figure"]).is_file()
    shown = rpdp("frontier", *RUN, *DECLARED, *SIGMAS)
    assert shown.out.count("← knee") == 1
    assert "promise" not in shown.out


def test_the_figure_is_not_overwritten(rpdp: Command) -> None:
    arguments = ["frontier", *RUN, *DECLARED, *SIGMAS, "--figure", "frontier.html"]
    assert flat(rpdp(*arguments).out).endswith("figure: frontier.html")
    assert "frontier.html exists" in rpdp(*arguments).err
    assert rpdp(*arguments, "--force").code == 0


def test_frontier_of_real_budgets_says_that_it_is_not_covered(rpdp: Command, budgets: Path) -> None:
    frontier = rpdp("frontier", *RUN, "-b", budgets, *SIGMAS, "--json").json
    assert frontier["covered"] is False
    assert "the promise does not cover a σ chosen by looking at real budgets" in frontier["note"]
    assert frontier["note"] in flat(rpdp("frontier", *RUN, "-b", budgets, *SIGMAS).out)


def test_a_declared_distribution_beside_real_budgets_is_what_counts(rpdp: Command, budgets: Path) -> None:
    both = rpdp("frontier", *RUN, *DECLARED, "-b", budgets, *SIGMAS, "--json").json
    assert both == rpdp("frontier", *RUN, *DECLARED, *SIGMAS, "--json").json


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --budgets FILE, or --distribution NAME with --records N, or both"),
        (["-b", "nowhere.csv", "-n", "5"], "--records only goes with --distribution"),
        (["-b", "nowhere.csv"], "nowhere.csv: no such file"),
        ([*DECLARED, "--figure", "frontier.png"], "--figure frontier.png: the name of the figure must end in .html"),
        ([*DECLARED, "--noise-multipliers", "1,zwei"], "--noise-multipliers '1,zwei' must be numbers"),
        ([*DECLARED, "--noise-multipliers", "1,-2"], "noise_multiplier=-2.0 must be positive"),
        ([*DECLARED, "--max-epsilon", "10"], "--max-epsilon"),
    ],
)
def test_bad_input(rpdp: Command, tmp_path: Path, arguments: list[str], message: str) -> None:
    refused = rpdp("frontier", *RUN, *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert rpdp("frontier", *RUN, *arguments, "--json").json["error"] == refused.err[len("error: ") : -1]
    assert list(tmp_path.iterdir()) == []
