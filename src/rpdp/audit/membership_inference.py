"""The model-only audit, **a demonstration**: what an outsider with the final model can tell about real records.

Many simulations of the same run. In each, a coin decides for every record whether it is in, and every record gets one
of the budgets at random. The attacker knows records, plan and many other runs, and sees the final model alone; see
`rpdp.audit.offline_lira`.

It shows an order, not a bound: a better attack may exist, so low numbers prove nothing. Thresholds for the advantage
(true minus false positive rate) are chosen on the other runs. Beside it stands what no attacker can exceed, the
advantage δ(0) of the profile, for observers of everything.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rpdp.audit.offline_lira import CONFIDENCE, Interval, Trials, advantages, areas, roc
from rpdp.budgets import BudgetTable
from rpdp.checks import require_count, require_positive
from rpdp.errors import InputError
from rpdp.federation import Policy, simulate
from rpdp.sampling import Seeded
from rpdp.training import FlatModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from rpdp.federation import Silo
    from rpdp.planning import PublicPlan
    from rpdp.sampling import Randomness
    from rpdp.training import PerRecordLoss, Records

RUNS = 40
FEWEST_RUNS = 8
"""Fewer give no useful interval."""

_CHUNK = 4_096


@dataclass(frozen=True)
class MembershipGroup:
    """Records while they had one budget.

    Attributes:
        epsilon: The budget.
        probability: Their q, the largest over silos.
        bound: The advantage that no attacker can exceed.
        advantage: Of this attack.
        area: Under the ROC curve; 0.5 is guessing.
        roc: False and true positive rates, pooled over runs, to draw.
    """

    epsilon: float
    probability: float
    bound: float
    advantage: Interval
    area: Interval
    roc: tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class MembershipResult:
    """A model-only audit.

    Attributes:
        groups: In the order of their budgets.
        slope: Growth of the area from one budget to the next larger one.
        runs: How many simulations.
        records: Real records in all.
        confidence: Of every interval, by itself.
        plan: Fingerprint of the public plan.
    """

    groups: tuple[MembershipGroup, ...]
    slope: Interval
    runs: int
    records: int
    confidence: float
    plan: str

    @property
    def follows_budgets(self) -> bool:
        """Whether leakage clearly grows with the budget."""
        return self.slope.low > 0.0

    @property
    def passed(self) -> bool:
        """Whether no group leaks more than its bound."""
        return all(group.advantage.low <= group.bound for group in self.groups)

    def verdict(self) -> list[str]:
        """The result in sentences."""
        said = ["A demonstration: one attack on the final model. It shows an order and proves no bound."]
        least, largest = self.groups[0], self.groups[-1]
        if self.follows_budgets:
            said.append(
                f"Leakage follows the budgets: from {least.area.mean:.3f} at ε = {least.epsilon:g} to "
                f"{largest.area.mean:.3f} at ε = {largest.epsilon:g} (area under the ROC curve; 0.5 is guessing)."
            )
        elif any(group.area.low > 0.5 for group in self.groups):
            said.append("Some leakage is visible, but no clear order of the budgets in this many runs.")
        else:
            said.append(
                f"No leakage is visible, not even at ε = {largest.epsilon:g}: this attack does no better than guessing."
            )
        return said + [
            f"ABOVE THE BOUND: at ε = {group.epsilon:g} the attack has an advantage of {group.advantage}, the profile "
            f"allows {group.bound:.3f}."
            for group in self.groups
            if group.advantage.low > group.bound
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        own = {"passed": self.passed, "follows_budgets": self.follows_budgets, "verdict": self.verdict()}
        return {**asdict(self), **own}


def audit_model(
    model: nn.Module,
    loss: PerRecordLoss,
    silos: Sequence[Silo],
    public: PublicPlan,
    *,
    groups: Sequence[float],
    runs: int = RUNS,
    seed: int = 0,
    workers: int | None = None,
    on_run: Callable[[int, int], None] | None = None,
) -> MembershipResult:
    """Attack the final models of many simulations of a run; a demonstration.

    Args:
        model: Where training starts, in every simulation.
        loss: From output and targets to one value per record.
        silos: Of the run; their records, planner and kind are used, their budgets and accounts are not.
        public: The plan.
        groups: Budgets that records get at random.
        runs: How many simulations.
        seed: Of coins and simulations.
        workers: See `rpdp.simulate`.
        on_run: Called with the number of simulations done and in all.
    """
    require_count("runs", runs, least=FEWEST_RUNS)
    budgets = tuple(sorted(require_positive("groups", epsilon) for epsilon in groups))
    records = sum(len(silo.records) for silo in silos)
    if not budgets or records < 4 * len(budgets):
        raise InputError(f"{records} records are too few for {len(budgets)} budget groups")
    trials, largest = [], np.zeros(len(budgets))
    for number in range(runs):
        losses, taken, group, q = _trial(model, loss, silos, public, np.array(budgets), Seeded(seed), number, workers)
        trials.append((losses, taken, group))
        largest = np.maximum(largest, q)
        if on_run is not None:
            on_run(number + 1, runs)
    found = Trials(*(np.stack(parts) for parts in zip(*trials, strict=True)))
    return evaluate(found, budgets, largest, public)


def evaluate(
    trials: Trials, budgets: Sequence[float], probabilities: NDArray[np.float64], public: PublicPlan
) -> MembershipResult:
    """From losses, coins and budgets of many runs to areas and advantages."""
    scores = trials.scores()
    by_run = np.array([areas(scores, trials, group) for group in range(len(budgets))])
    slopes = np.polyfit(np.arange(len(budgets)), by_run, 1)[0] if len(budgets) > 1 else np.zeros(by_run.shape[1])
    groups = [
        MembershipGroup(
            epsilon,
            float(q),
            public.curve.advantage(float(q)),
            Interval.of(advantages(scores, trials, number)),
            Interval.of(by_run[number]),
            roc(scores, trials, number),
        )
        for number, (epsilon, q) in enumerate(zip(budgets, probabilities, strict=True))
    ]
    runs, records = trials.losses.shape
    return MembershipResult(tuple(groups), Interval.of(slopes), runs, records, CONFIDENCE, public.fingerprint)


def _trial(
    model: nn.Module,
    loss: PerRecordLoss,
    silos: Sequence[Silo],
    public: PublicPlan,
    budgets: NDArray[np.float64],
    source: Randomness,
    number: int,
    workers: int | None,
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64], NDArray[np.float64]]:
    """One simulation: losses of all records, who was in, who had which budget, and the q of each budget."""
    stream = source.child("membership", number)
    made, taken, group = [], [], []
    for silo in silos:
        count = len(silo.records)
        coins = (stream.child("coins", silo.name).words(count) & np.uint64(1)).astype(bool)
        coins[0] |= not coins.any()  # a silo without records is no silo
        which = _balanced(count, len(budgets), stream.child("budgets", silo.name))
        rows = np.flatnonzero(coins)
        table = BudgetTable([str(row) for row in rows], budgets[which[rows]])
        made.append(
            type(silo)(silo.name, silo.records.select(rows), table, policy=Policy.of(public), planner=silo.planner)
        )
        taken.append(coins)
        group.append(which)
    seed = int(stream.child("seed").words(1)[0] >> np.uint64(2))
    result = simulate(model, loss, made, public, seed=seed, workers=workers)
    probabilities = np.zeros(len(budgets))
    for silo, coins, which in zip(made, taken, group, strict=True):
        np.maximum.at(probabilities, which[coins], result.silos[silo.name].plan.q)
    flat = FlatModel(result.model)
    losses = np.concatenate([_losses(flat, loss, silo.records) for silo in silos])
    return losses, np.concatenate(taken), np.concatenate(group), probabilities


def _balanced(count: int, groups: int, randomness: Randomness) -> NDArray[np.int64]:
    """Every budget equally often, in random order."""
    return (np.argsort(randomness.words(count), kind="stable") % groups).astype(np.int64)


def _losses(model: FlatModel, loss: PerRecordLoss, records: Records) -> NDArray[np.float64]:
    model.module.eval()
    with torch.no_grad():
        parts = [
            loss(model.module(*[model.prepare(tensor) for tensor in chunk.inputs]), chunk.targets.to(model.device))
            for chunk in records.chunks(_CHUNK)
        ]
    losses: NDArray[np.float64] = np.nan_to_num(torch.cat(parts).double().cpu().numpy(), posinf=1e30, neginf=-1e30)
    return losses
