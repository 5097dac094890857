from __future__ import annotations

import math

import numpy as np
import pytest
from rpdp_lab.reproduction.suites import figure_2, figure_5, figure_6
from rpdp_lab.reproduction.suites.cost_curves import over_orders, over_probabilities


def test_figure_2_at_probability_one_is_the_gaussian_mechanism() -> None:
    settings = figure_2.cells("quick")[0].settings
    found = over_orders(settings, "cpu")
    orders = np.asarray(settings["orders"])
    assert settings["q"][-1] == 1.0
    np.testing.assert_allclose(found["rdp"][-1], 100 * orders / 2.0, rtol=1e-5)
    np.testing.assert_allclose(found["epsilon"][-1], 50 * orders + math.log(1e3) / (orders - 1.0), rtol=1e-5)


def test_figure_2_minima_rise_with_the_probability_and_their_orders_fall() -> None:
    found = over_orders(figure_2.cells("quick")[0].settings, "cpu")
    assert np.all(np.diff(found["best_epsilon"]) > 0)
    assert np.all(np.diff(found["best_order"]) < 0)


def test_a_federation_costs_less_than_its_steps_in_one_place() -> None:
    """The paper's footnote to figure 5: participation amplifies; without it the same schedule costs more."""
    settings = figure_5.cells("quick")[0].settings
    with_coin = over_orders(settings, "cpu")["best_epsilon"]
    without = over_orders({**settings, "participation": 1.0}, "cpu")["best_epsilon"]
    assert np.all(np.asarray(with_coin) < np.asarray(without))


def test_the_fit_of_figure_5_is_good_and_overspends_all_the_same() -> None:
    settings = {**figure_5.cells("quick")[1].settings, "budgets": [0.1, 0.5, 5.0], "q": [0.01, 0.5]}
    found = over_probabilities(settings, "cpu")
    assert found["fit"]["r_squared"] > 0.9999
    small, middle, large = found["violation"]
    assert small > 3.0 > middle > 1.2
    assert large < 1.0  # the control: large budgets are kept, so not everything is called an overdraft
    assert all(lower <= upper for lower, upper in zip(found["violation_lower"], found["violation"], strict=True))


def test_figure_6_costs_fall_with_the_noise() -> None:
    cells = {cell.settings["noise_multiplier"]: cell.settings for cell in figure_6.cells("quick")}
    small = {"q": [0.05, 1.0], "budgets": [1.0]}
    noisy, quiet = (over_probabilities({**cells[sigma], **small}, "cpu") for sigma in (5.0, 1.0))
    assert np.all(np.asarray(noisy["epsilon"]) < np.asarray(quiet["epsilon"]))
    assert quiet["pld"][0] == pytest.approx(quiet["epsilon"][0], rel=0.6)
    assert quiet["pld"][0] <= quiet["epsilon"][0]
