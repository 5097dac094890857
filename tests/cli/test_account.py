from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rpdp.accounting import PrivacyCurve, Schedule

if TYPE_CHECKING:
    from tests.cli.conftest import Command

RUN = ["account", "-T", "15", "-t", "50", "-s", "10.748", "-d", "1e-4"]


@pytest.fixture
def prices(rpdp: Command) -> dict[str, Any]:
    return rpdp(*RUN, "--participation", "0.5", "--q", "0.01,1", "--realised", 12, "--json").json


def test_json(prices: dict[str, Any]) -> None:
    assert set(prices) == {"schedule", "noise_multiplier", "delta", "prices"}
    assert prices["schedule"] == {
        "rounds": 15,
        "local_steps": 50,
        "participation": 0.5,
        "max_participations": None,
        "participations": None,
        "expected_participations": pytest.approx(7.5),
    }
    assert set(prices["prices"][0]) == {
        "q",
        "epsilon_pld",
        "epsilon_lower_bound",
        "epsilon_rdp",
        "epsilon_given_realised",
        "advantage",
        "profile",
    }


def test_numbers_are_those_of_the_library(prices: dict[str, Any]) -> None:
    curve = PrivacyCurve(Schedule(15, 50, participation=0.5), noise_multiplier=10.748, delta=1e-4)
    small, one = prices["prices"]
    assert (small["q"], one["q"]) == (0.01, 1.0)
    assert one["epsilon_pld"] == curve.epsilon(1.0) == pytest.approx(8.8, abs=0.05)  # privacy.md section 4
    assert one["epsilon_given_realised"] == curve.given(12).epsilon(1.0) == pytest.approx(10.5, abs=0.05)
    assert small["epsilon_lower_bound"] <= small["epsilon_pld"] <= small["epsilon_rdp"]
    assert one["advantage"] == curve.advantage(1.0)
    assert [point["epsilon"] / one["epsilon_pld"] for point in one["profile"]] == [0.25, 0.5, 1.0, 1.5]
    assert one["profile"][2]["delta"] <= 1.001e-4


def test_table_and_the_remark_on_coins(rpdp: Command) -> None:
    shown = rpdp(*RUN, "--participation", "0.5", "--q", "0.1", "--realised", 12)
    assert shown.code == 0
    assert shown.out.startswith("15 rounds × 50 local steps, participation 0.5 · σ = 10.748 · δ = 0.0001\n")
    assert " 0.57" in shown.out
    assert "a promise before the coins are flipped" in shown.out
    exact = rpdp(*RUN, "--participations", 8, "--q", "0.1").out
    assert "exactly 8 rounds joined" in exact
    assert "coins" not in exact


def test_a_record_that_is_never_drawn_costs_nothing(rpdp: Command) -> None:
    price = rpdp(*RUN, "--participations", 8, "--q", "0", "--json").json["prices"][0]
    assert (price["epsilon_pld"], price["epsilon_rdp"], price["advantage"]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say how silos take part: --participation 0.5 (a coin), or --participations 8"),
        (["--participation", "0.5", "--participations", "8"], "give either participation=λ"),
        (["--participation", "2"], "participation=2.0 must be above 0 and at most 1"),
        (["--participations", "16"], "participations=16 must be between 1 and 15"),
        (["--participations", "8", "--max-participations", "9"], "max_participations=9 needs participation=λ"),
        (["--participations", "8", "--q", "1.5"], "q=1.5 must lie between 0 and 1"),
        (["--participations", "8", "--q", "nan"], "q=nan must lie between 0 and 1"),
        (["--participations", "8", "--q", "a,b"], "--q 'a,b' must be numbers separated by commas"),
        (["--participations", "8", "--q", ""], "--q '' must be numbers separated by commas"),
        (["--participations", "8", "--realised", "16"], "--realised=16 must be between 0 and 15"),
        (["--participations", "8", "-d", "0"], "delta=0.0 must lie strictly between 0 and 1"),
        (["--participations", "8", "-s", "0"], "noise_multiplier=0.0 must be positive"),
        (["--participations", "8", "-s", "inf"], "noise_multiplier=inf must be finite"),
        (["--participations", "8", "-T", "0"], "rounds=0 must be between 1 and 1,000,000"),
        (["--participations", "8", "-T", "1.5"], "Invalid value for '--rounds' / '-T': '1.5' is not a valid integer"),
        (["--participation", "0.5", "--sigma", "3"], "--sigma"),
    ],
)
def test_bad_input(rpdp: Command, arguments: list[str], message: str) -> None:
    refused = rpdp(*RUN, *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: ")
    assert message in refused.err
    as_json = rpdp(*RUN, *arguments, "--json")
    assert as_json.code == as_json.json["exit_code"] == 2
    assert message in as_json.json["error"]
