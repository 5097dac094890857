"""The bound that an attacker proves: true, sharp where it says so, and written without the accountants."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from rpdp import BudgetTable, PublicPlan, Schedule, calibrate_noise
from rpdp.ledger.inspection import attacker
from rpdp.ledger.inspection.attacker import joined_rounds, provable_delta
from rpdp.ledger.inspection.repricing import _attacked, _some
from rpdp.ledger.store.run_book import Admission
from tests.ledger import small

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = [
    pytest.param(Schedule(15, 50, participation=0.5), None, 1e-4, 0.99, id="MNIST"),
    pytest.param(Schedule(15, 50, participation=0.5, max_participations=7), 9.0, 1e-4, 0.99, id="MNIST with a cap"),
    pytest.param(Schedule(15, 50, participations=8), 9.0, 1e-4, 0.99, id="MNIST, exactly 8"),
    pytest.param(Schedule(15, 10, participation=1.0), None, 1e-3, 0.98, id="Heart-Disease"),
    pytest.param(Schedule(20, 5, participation=0.5), 1.0, 1e-3, 0.6, id="the paper's figure"),
]


def plan(schedule: Schedule, sigma: float | None, delta: float) -> PublicPlan:
    noise = calibrate_noise(schedule, epsilon=10.0, delta=delta) if sigma is None else sigma
    return PublicPlan(
        schedule, noise_multiplier=noise, delta=delta, clip_norm=1.0, normaliser=1.0, weights=1.0, accountant="pld"
    )


@pytest.mark.parametrize(("schedule", "sigma", "delta", "sharpness"), SETTINGS)
def test_certified_costs_withstand_it_and_lower_ones_do_not(
    schedule: Schedule, sigma: float | None, delta: float, sharpness: float
) -> None:
    public = plan(schedule, sigma, delta)
    cost = np.array([0.1, 0.5, 1.0, 2.0, 5.0])
    q = public.curve.sampling_probability(cost)
    rounds = schedule.rounds
    assert (provable_delta(public, rounds, q, cost) <= delta).all()
    assert (provable_delta(public, rounds, q, cost * sharpness * 0.99) > delta).all()


@pytest.mark.parametrize("active", [3, 9])
@pytest.mark.parametrize("schedule", [Schedule(12, 20, participation=0.4), Schedule(12, 20, participations=5)])
def test_records_that_are_active_in_the_first_rounds_only(schedule: Schedule, active: int) -> None:
    public = plan(schedule, 6.0, 1e-3)
    q = np.array([0.05, 0.3, 1.0])
    cost = public.curve.after(active).epsilon(q)
    assert (provable_delta(public, active, q, cost) <= 1e-3).all()
    assert (provable_delta(public, active, q, 0.96 * cost) > 1e-3).all()
    assert (provable_delta(public, schedule.rounds, q, cost) > 1e-3).all()


def test_it_is_what_a_simulated_attacker_reaches() -> None:
    """200,000 runs of four steps with and without the record, seeded; five standard deviations."""
    public, runs, q, epsilon = plan(Schedule(2, 2, participation=0.5), 0.8, 1e-3), 200_000, 0.5, 0.3
    chance = np.random.default_rng(1)
    joined = chance.binomial(2, 0.5, runs)
    noise = chance.normal(0.0, 0.8 * np.sqrt(2 * np.maximum(joined, 1)), runs)
    seen_in = chance.binomial(2 * joined, q) + noise
    best = 0.0
    for count in (1, 2):
        rows = joined == count
        thresholds = np.linspace(-4.0, 8.0, 300)
        spread = 0.8 * np.sqrt(2 * count)
        there = (seen_in[rows][:, None] > thresholds).mean(axis=0)
        best += rows.mean() * (there - np.exp(epsilon) * stats.norm.sf(thresholds / spread)).max()
    proven = provable_delta(public, 2, np.array([q]), np.array([epsilon]))[0]
    assert proven > 0.05
    assert abs(best - proven) < 5 * np.sqrt(0.25 / runs) + 0.002  # their thresholds are not the same


def test_a_hopeless_attacker_proves_nothing() -> None:
    public = plan(Schedule(3, 3, participation=0.5), 2.0, 1e-3)
    large = provable_delta(public, 3, np.array([1e-6, 0.5, 1.0]), np.array([5.0, 900.0, 1000.0]))
    assert (large < 1e-12).all()
    assert (provable_delta(public, 0, np.array([1.0]), np.array([0.0])) == 0.0).all()


@pytest.mark.parametrize(
    ("schedule", "draw"),
    [
        (Schedule(9, 1, participation=0.3), lambda chance: chance.random(9) < 0.3),
        (Schedule(9, 1, participations=4), lambda chance: chance.permutation(np.arange(9) < 4)),
    ],
)
def test_the_law_of_joined_rounds(
    schedule: Schedule, draw: Callable[[np.random.Generator], np.ndarray[tuple[int], np.dtype[np.bool_]]]
) -> None:
    """Against 20,000 draws, for the first rounds; false alarm 1e-6."""
    chance = np.random.default_rng(2)
    draws = np.array([draw(chance) for _ in range(20_000)])
    for active in (5, 8):
        law = joined_rounds(schedule, active)
        assert law.sum() == pytest.approx(1.0)
        found = np.bincount(draws[:, :active].sum(axis=1), minlength=active + 1)
        kept = law * 20_000 > 5
        assert stats.chisquare(found[kept], law[kept] / law[kept].sum() * found[kept].sum()).pvalue > 1e-6
    capped = joined_rounds(Schedule(9, 1, participation=0.3, max_participations=2), 9)
    free = joined_rounds(Schedule(9, 1, participation=0.3), 9)
    assert capped.tolist() == pytest.approx([free[0], free[1], free[2:].sum(), *[0.0] * 7])


def test_long_runs_are_looked_at_in_part() -> None:
    """Still a bound: 50,000 steps, and 400 numbers of rounds that are not rare."""
    public = plan(Schedule(5000, 20, participation=0.5), 60.0, 1e-5)
    q = np.array([0.01, 0.1, 0.4])
    assert (provable_delta(public, 5000, q, public.curve.epsilon(q)) <= 1e-5).all()
    assert (provable_delta(public, 5000, q[-1:], np.zeros(1)) > 1e-5).all()


def test_it_uses_no_accountant() -> None:
    """Only for type hints."""
    tree = ast.parse(Path(attacker.__file__).read_text(encoding="utf-8"))
    loaded = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
    loaded |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert loaded == {"__future__", "typing", "numpy", "scipy.special"}


def test_verify_catches_an_accountant_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With prices that are all 20 % too low, in both directions, only the attacker knows better."""
    table = BudgetTable([f"r{number}" for number in range(40)], np.linspace(0.5, 3.0, 40))

    def wrong(admission: object, active: int, q: np.ndarray[tuple[int], np.dtype[np.float64]], *_: object) -> object:
        return 0.0 * q, 0.0 * q

    with small.make(tmp_path, table) as ledger:
        made = small.plan(ledger, table, noise_multiplier=5.0, accountant="pld")
        ledger.reserve("honest", made, None)
        monkeypatch.setattr("rpdp.ledger.inspection.repricing._prices", wrong)
        assert ledger.verify().is_good
        cheap = small.by_hand(made.public, table.ids, made.cost * 0.8, made.q)
        ledger.reserve("cheap", cheap, None)
        problems = [finding.problem for finding in ledger.verify().findings]
    assert len(problems) == 1
    assert problems[0].startswith("run 'cheap': 40 bookings are below what an attacker can prove")


def test_a_booking_that_an_attacker_refutes_is_reported() -> None:
    admission = Admission(2, "run", small.public(), "", "", None, 2, 1, "11:00", None)
    q = np.array([0.3, 0.5])
    assert list(_attacked(admission, 4, q, np.array([100.0, 100.0]), small.DELTA)) == []
    (found,) = _attacked(admission, 4, q, np.array([100.0, 1e-3]), small.DELTA)
    assert found.startswith(
        "run 'run': 1 bookings are below what an attacker can prove, at worst ε = 0.001 for q = 0.5"
    )


@pytest.mark.parametrize("cap", [3, 4, 6])
def test_a_cap_above_the_rounds_of_a_record_changes_nothing_for_it(cap: int) -> None:
    law = joined_rounds(Schedule(8, 3, participation=0.5, max_participations=cap), 4)
    assert law.sum() == pytest.approx(1.0)
    assert law[4] == pytest.approx(0.0 if cap == 3 else 0.5**4)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 5000])
def test_of_many_probabilities_some_are_priced_and_of_few_all(count: int) -> None:
    """With the smallest: the others are held against the next smaller one that was priced."""
    q = np.linspace(0.1, 0.9, count)
    some = _some(np.concatenate([q[::-1], q]), 8)
    assert some.size == min(count, 8)
    assert some[0] == 0.1
    assert np.isin(some, q).all()
