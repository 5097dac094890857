from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.cli.conftest import LabCommand


def test_the_command_prints_json(rpdp_lab: LabCommand) -> None:
    answer = rpdp_lab(
        "central", "--task", "breast_cancer", "--seeds", 1, "--quick", "--json", "--method", "plain SGD"
    ).json
    assert [row["method"] for row in answer["rows"]] == ["plain SGD"]
    assert answer["seeds"] == [0]


def test_the_command_prints_a_table(rpdp_lab: LabCommand) -> None:
    names = ("plain SGD", "uniform DP-SGD, minimum")
    shown = rpdp_lab("central", "--seeds", 1, "--quick", "--method", names[0], "--method", names[1])
    assert shown.code == 0
    assert all(name in shown.out for name in (*names, "a simulation", "breast_cancer"))
    assert "Filter" not in shown.out


def test_wrong_requests_are_refused(rpdp_lab: LabCommand) -> None:
    refused = rpdp_lab("central", "--task", "breast_cancer", "--seeds", 0)
    assert (refused.code, refused.out) == (2, "")
    assert "at least one seed" in refused.err
    assert "method 'magic' is not known" in rpdp_lab("central", "--method", "magic").err
