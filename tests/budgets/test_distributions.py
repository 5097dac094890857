from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpdp.budgets import AUTHORS, PAPER, PARAMETER_SETS, BoundedMixGauss, BoundedPareto, ThreeLevels, distribution
from rpdp.errors import BudgetError, InputError

NAMES = ["ThreeLevels", "BoundedPareto", "BoundedMixGauss"]


@pytest.mark.parametrize(
    ("records", "counts"),
    [(1, [1, 0, 0]), (2, [2, 0, 0]), (3, [2, 1, 0]), (7, [5, 1, 1]), (10, [7, 2, 1]), (1000, [700, 200, 100])],
)
def test_exact_proportions(records: int, counts: list[int]) -> None:
    budgets = ThreeLevels().sample(records, seed=5)
    assert [int((budgets == level).sum()) for level in (0.1, 1.0, 5.0)] == counts


@settings(deadline=None)  # the machine may be busy
@given(records=st.integers(1, 5000), weights=st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any))
def test_every_level_is_within_one_record_of_its_share(records: int, weights: list[int]) -> None:
    shares = tuple(weight / sum(weights) for weight in weights)
    levels = tuple(float(number + 1) for number in range(len(shares)))
    budgets = ThreeLevels(levels, shares).sample(records, seed=0)
    assert budgets.size == records
    for level, share in zip(levels, shares, strict=True):
        assert abs(int((budgets == level).sum()) - share * records) < 1.0


def test_mixture_has_exact_proportions_too() -> None:
    narrow = BoundedMixGauss(means=(1.0, 5.0, 9.0), deviations=(1e-3,) * 3)
    assert np.unique(narrow.sample(1000, seed=1).round(), return_counts=True)[1].tolist() == [700, 200, 100]


@pytest.mark.parametrize("parameters", PARAMETER_SETS)
@pytest.mark.parametrize("name", NAMES)
def test_seeds_and_bounds(name: str, parameters: str) -> None:
    chosen = distribution(name, parameters)
    first = chosen.sample(5000, seed=1)
    assert first.min() >= 0.1
    assert first.max() <= 10.0
    np.testing.assert_array_equal(first, chosen.sample(5000, seed=1))
    assert (first != chosen.sample(5000, seed=2)).any()


def test_order_is_random() -> None:
    budgets = ThreeLevels().sample(1000, seed=0)
    assert 600 < (budgets[:900] == 0.1).sum() < 660  # sorted it would be 700; expected 630 ± 5


def test_parameters_of_paper_and_authors() -> None:
    """privacy.md section 7: the text and the published files differ."""
    assert PAPER["BoundedPareto"] == BoundedPareto(shape=1.0, lower=0.1, scale=0.1, bounds=(0.1, 10.0))
    assert AUTHORS["BoundedPareto"] == BoundedPareto(shape=4.0, lower=0.1, scale=1.0, bounds=(0.1, 10.0))
    variances = tuple(math.sqrt(variance) for variance in (0.01, 0.05, 0.5))
    assert PAPER["BoundedMixGauss"] == BoundedMixGauss((0.1, 1.0, 5.0), variances, (0.7, 0.2, 0.1), (0.1, 10.0))
    assert AUTHORS["BoundedMixGauss"] == BoundedMixGauss((0.1, 1.0, 5.0), (0.05, 0.1, 0.5), (0.7, 0.2, 0.1))
    assert PAPER["ThreeLevels"] == AUTHORS["ThreeLevels"] == ThreeLevels((0.1, 1.0, 5.0), (0.7, 0.2, 0.1))


@pytest.mark.parametrize(
    ("pareto", "median"),
    [(PAPER["BoundedPareto"], 0.1 * 2.0), (AUTHORS["BoundedPareto"], 0.1 + 2.0**0.25 - 1.0)],
    ids=["paper", "authors"],
)
def test_median_of_the_pareto(pareto: BoundedPareto, median: float) -> None:
    """100,000 draws, fixed seed: the standard error of the median is below 0.4 %; 2 % is five of them."""
    assert np.median(pareto.sample(100_000, seed=3)) == pytest.approx(median, rel=0.02)


def test_deviations_of_the_mixture() -> None:
    """10,000 draws per part, fixed seed: the standard error of a deviation is 0.7 %."""
    for name, expected in (("paper", math.sqrt(0.5)), ("authors", 0.5)):
        drawn = distribution("BoundedMixGauss", name, {"shares": (0.0, 0.0, 1.0)}).sample(10_000, seed=4)
        assert drawn.std() == pytest.approx(expected, rel=0.03)


def test_overrides() -> None:
    assert distribution("ThreeLevels", overrides={"levels": (1.0, 3.0, 10.0)}) == ThreeLevels((1.0, 3.0, 10.0))
    assert distribution("BoundedPareto", "authors", {"shape": (2.0,)}) == BoundedPareto(2.0, 0.1, 1.0)
    assert distribution("BoundedPareto", overrides={"bounds": (0.5, 2.0)}).sample(1000, 0).max() == 2.0


@pytest.mark.parametrize(
    ("name", "parameters", "overrides", "message"),
    [
        ("threelevels", "paper", {}, "unknown distribution 'threelevels'; did you mean 'ThreeLevels'"),
        ("Cauchy", "paper", {}, r"unknown distribution 'Cauchy'.*known: ThreeLevels, BoundedPareto, BoundedMixGauss"),
        ("ThreeLevels", "author", {}, "unknown parameters 'author'; did you mean 'authors'"),
        ("ThreeLevels", "paper", {"level": (1.0,)}, "unknown parameter of ThreeLevels 'level'; did you mean 'levels'"),
        ("BoundedPareto", "paper", {"shape": (1.0, 2.0)}, "shape of BoundedPareto is one number, got 2"),
    ],
)
def test_refuses_unknown_names(name: str, parameters: str, overrides: Any, message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        distribution(name, parameters, overrides)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (ThreeLevels(shares=(0.5, 0.5)), r"shares=\(0.5, 0.5\) must be 3 numbers"),
        (ThreeLevels(shares=(0.7, 0.2, 0.2)), "add up to 1"),
        (ThreeLevels(shares=(0.7, 0.2, 0.100009)), "add up to 1"),
        (ThreeLevels(shares=(1.2, -0.2, 0.0)), "not negative"),
        (ThreeLevels(shares=(math.nan, 0.5, 0.5)), "add up to 1"),
        (ThreeLevels(levels=(0.1, -1.0, 5.0)), r"levels=-1\.0 must be positive"),
        (ThreeLevels(levels=(0.1, math.nan, 5.0)), "levels=nan must be finite"),
        (BoundedPareto(shape=0.0), r"shape=0\.0 must be positive"),
        (BoundedPareto(scale=-1.0), r"scale=-1\.0 must be positive"),
        (BoundedPareto(bounds=(10.0, 0.1)), "must be two positive, finite numbers, the smaller one first"),
        (BoundedPareto(bounds=(0.0, 1.0)), "must be two positive"),
        (BoundedPareto(bounds=(0.1, math.inf)), "must be two positive"),
        (BoundedPareto(bounds=(0.1,)), "must be two positive"),
        (BoundedMixGauss(deviations=(1.0,)), "1 deviations for 3 means; give one for each"),
        (BoundedMixGauss(deviations=(1.0, -1.0, 1.0)), r"deviations=-1\.0 must be positive"),
        (BoundedMixGauss(means=(1.0, math.nan, 1.0)), "means=nan must be finite"),
    ],
)
def test_refuses_impossible_parameters(wrong: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wrong.sample(1_000_000, seed=0)


@pytest.mark.parametrize("name", NAMES)
def test_refuses_impossible_sizes_and_seeds(name: str) -> None:
    with pytest.raises(InputError, match="records=0 must be at least 1"):
        PAPER[name].sample(0, seed=0)
    with pytest.raises(InputError, match="seed=-1 must be at least 0"):
        PAPER[name].sample(10, seed=-1)
