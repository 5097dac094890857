"""The check that every certified probability must pass, and the settings it is run on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant

from rpdp import PrivacyCurve, Schedule
from rpdp.accounting import Accountant, pld, renyi

if TYPE_CHECKING:
    from numpy.typing import NDArray

REPRICED = 20


@dataclass(frozen=True)
class Verdict:
    """How certified probabilities fared: shares above 0 in `overspent` are violations."""

    overspent: float
    """Largest cost/ε − 1, by the curve and by the independent price."""

    slack: float
    """Largest unused part of a budget in units of what is allowed (0.5 %, or 2.5e-4 below ε = 0.05).

    Where the Rényi bound itself jumps to 0 (see `tight_epsilon`), a budget inside the jump cannot be used up.
    """


def random_schedule(generator: np.random.Generator, rounds: int, local_steps: int, participation: float) -> Schedule:
    """A schedule of any of the three kinds of participation."""
    kind = generator.integers(3)
    if kind == 0:
        return Schedule(rounds, local_steps, participation=participation)
    some = int(generator.integers(1, rounds + 1))
    if kind == 1:
        return Schedule(rounds, local_steps, participation=participation, max_participations=some)
    return Schedule(rounds, local_steps, participations=some)


def random_setting(generator: np.random.Generator) -> tuple[Schedule, float, float]:
    """A schedule with σ and δ, spread over what people run."""
    rounds, local_steps = (int(np.exp(generator.uniform(0, np.log(most)))) for most in (200, 100))
    participation = float(generator.choice([1.0, generator.uniform(0.05, 1.0)]))
    schedule = random_schedule(generator, rounds, local_steps, participation)
    sigma = float(np.exp(generator.uniform(np.log(0.5), np.log(30.0))))
    delta = float(10.0 ** generator.uniform(-9, -2))
    return schedule, sigma, delta


def random_budgets(generator: np.random.Generator, count: int = 1000) -> NDArray[np.float64]:
    """Budgets from 0.001 to 30."""
    return np.exp(generator.uniform(np.log(1e-3), np.log(30.0), count))


def priced_again(schedule: Schedule, sigma: float, delta: float, q: float, accountant: Accountant) -> float:
    """The cost of exactly this q, uncached: at λ = 1 by dp_accounting, else on a grid four times finer."""
    row, count = np.array([q]), schedule.count()
    guide = renyi.best_epsilon(row, sigma, schedule.local_steps, count, delta)
    run = pld.Run(sigma, schedule.local_steps, count)
    if accountant == "rdp":
        orders = 1.0 + guide.theta[0] * np.exp2(np.linspace(-1 / 16, 1 / 16, 129))
        moments = renyi.run_log_moments(row, orders, sigma, schedule.local_steps, count)
        return float(renyi.tight_epsilon(moments, orders, delta).min())
    finer = float(pld.upper_epsilon(row, run, delta, guide, pld.ACCURACY / 16)[0])
    if schedule.participation == 1.0 and schedule.max_participations is None and 0.02 < finer < 50.0:
        # The peer's grid must be fine for the cost at hand, else its own pessimism is all that one sees.
        grid = pld._choose_grid(row, run, np.array([finer]), guide.theta, pld.ACCURACY, np.zeros(1), delta)
        spacing = min(float(grid.step_spacing[0]) / 4, 0.01 * finer / np.sqrt(schedule.steps))
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
        peer = PLDAccountant(value_discretization_interval=spacing).compose(event, schedule.steps)
        return min(float(peer.get_epsilon(delta)), float(guide.bound[0]))
    return finer


def examine(
    schedule: Schedule,
    sigma: float,
    delta: float,
    accountant: Accountant,
    budgets: NDArray[np.float64],
    chosen: NDArray[np.float64] | None = None,
) -> Verdict:
    """Price certified probabilities (or `chosen` ones, to try the check itself) and compare with the budgets."""
    curve = PrivacyCurve(schedule, noise_multiplier=sigma, delta=delta, accountant=accountant)
    q, cost = curve.certify(budgets)
    assert (q[budgets >= curve.largest_cost] == 1.0).all()
    if chosen is not None:
        q, cost = chosen, curve.epsilon(chosen)
    overspent = float((cost / budgets).max() - 1.0)
    inside = (q > 0.0) & (q < 1.0)
    allowed = np.where(budgets >= 0.05, 0.005 * budgets, 2.5e-4)
    free = np.flatnonzero(inside & (cost == 0.0))
    inside[free[curve.epsilon(np.minimum(q[free] * (1 + 1e-6), 1.0)) > budgets[free]]] = False
    slack = float(((budgets - cost) / allowed)[inside].max(initial=0.0))
    spread = np.argsort(budgets)[:: max(1, budgets.size // REPRICED)]
    for row in spread:
        if q[row] > 0.0:
            again = priced_again(schedule, sigma, delta, float(q[row]), accountant)
            overspent = max(overspent, again / budgets[row] - 1.0)
    return Verdict(overspent, slack)
